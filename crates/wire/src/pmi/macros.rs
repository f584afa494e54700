//! Generates types, decoders and encoders from the command table's rows.
//!
//! `commands!` and `replies!` are each used once, in `table`. A row is a command or a reply; a field is `name: Type =
//! [its names in PMI-1] [its names in PMI-2] or "default"`, where no name means that the dialect lacks the field. When
//! reading, any of the names is accepted. A request is written with the first name only, a reply with all of them,
//! because clients look for different names.

/// The names of a field in a dialect, for reading and for errors.
macro_rules! field_names {
    ($dialect:expr, [$($pmi1:literal),*] [$($pmi2:literal),*]) => {
        match $dialect {
            Dialect::Pmi1 => { const NAMES: &[&str] = &[$($pmi1),*]; NAMES }
            Dialect::Pmi2 => { const NAMES: &[&str] = &[$($pmi2),*]; NAMES }
        }
    };
}

/// The default text of a field that is missing from the message.
macro_rules! default_text {
    () => {
        None
    };
    ($default:literal) => {
        Some($default)
    };
}

macro_rules! commands {
    (
        $(
            $(#[doc = $doc:literal])*
            $variant:ident [$($request1:literal => $reply1:literal)?] [$($request2:literal)?] -> $reply:ident
            $({ $(
                $(#[doc = $field_doc:literal])*
                $field:ident: $type:ty = [$($pmi1:literal),*] [$($pmi2:literal),*] $(or $default:literal)?;
            )* })?
        )*
        @by_hand:
        $(
            $(#[doc = $hand_doc:literal])*
            $hand:ident($hand_type:ty) [$hand_request1:literal => $hand_reply1:literal] [$hand_request2:literal]
                -> $hand_reply:ident
        )*
    ) => {
        /// The kind of a request; kept for writing its reply.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum Command {
            $($(#[doc = $doc])* $variant,)*
            $($(#[doc = $hand_doc])* $hand,)*
            /// A request that is not in the table; see [`super::encode_unknown`].
            Unknown,
        }

        /// A rank's request.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Request<'a> {
            $($(#[doc = $doc])* $variant $({ $($(#[doc = $field_doc])* $field: $type,)* })?,)*
            $($(#[doc = $hand_doc])* $hand($hand_type),)*
            /// A command that is not in the table: answer with [`super::encode_unknown`].
            Unknown { name: &'a [u8] },
            /// A known command with invalid fields in a valid frame: this request fails, the link continues.
            Malformed { command: Command, problem: Problem },
        }

        impl Command {
            /// All commands of the table, in its order.
            pub const ALL: &'static [Command] = &[$(Command::$variant,)* $(Command::$hand,)*];

            /// The request's name on the wire, if the dialect has it.
            pub const fn request_name(self, dialect: Dialect) -> Option<&'static str> {
                match (self, dialect) {
                    $($((Command::$variant, Dialect::Pmi1) => Some($request1),)?)*
                    $($((Command::$variant, Dialect::Pmi2) => Some($request2),)?)*
                    $((Command::$hand, Dialect::Pmi1) => Some($hand_request1),)*
                    $((Command::$hand, Dialect::Pmi2) => Some($hand_request2),)*
                    _ => None,
                }
            }

            /// The reply's name in PMI-1; empty if there is no reply.
            pub(super) const fn pmi1_reply_name(self) -> Option<&'static str> {
                match self {
                    $($(Command::$variant => Some($reply1),)?)*
                    $(Command::$hand => Some($hand_reply1),)*
                    _ => None,
                }
            }

            /// The kind of the reply if the request succeeds.
            pub const fn reply_kind(self) -> ReplyKind {
                match self {
                    $(Command::$variant => ReplyKind::$reply,)*
                    $(Command::$hand => ReplyKind::$hand_reply,)*
                    Command::Unknown => ReplyKind::Done,
                }
            }

            pub(super) fn of_name(dialect: Dialect, name: &[u8]) -> Command {
                match dialect {
                    Dialect::Pmi1 => {
                        $($(if name == $request1.as_bytes() { return Command::$variant; })?)*
                        $(if name == $hand_request1.as_bytes() { return Command::$hand; })*
                    }
                    Dialect::Pmi2 => {
                        $($(if name == $request2.as_bytes() { return Command::$variant; })?)*
                        $(if name == $hand_request2.as_bytes() { return Command::$hand; })*
                    }
                }
                Command::Unknown
            }
        }

        impl<'a> Request<'a> {
            /// Which command this is.
            pub fn command(&self) -> Command {
                match self {
                    $(Request::$variant { .. } => Command::$variant,)*
                    $(Request::$hand(_) => Command::$hand,)*
                    Request::Unknown { .. } => Command::Unknown,
                    Request::Malformed { command, .. } => *command,
                }
            }

            /// Reads the fields of a table command in one pass; PMI-2's `thrid` goes to `thread`.
            #[allow(unused_assignments, clippy::needless_update)]
            pub(super) fn decode(
                command: Command,
                dialect: Dialect,
                pairs: Pairs<'a>,
                thread: &mut Option<&'a [u8]>,
            ) -> Result<Self, Problem> {
                match command {
                    $(Command::$variant => {
                        $($(let mut $field: Option<&'a [u8]> = None;)*)?
                        for (key, _value) in pairs {
                            $($(if $field.is_none()
                                && field_names!(dialect, [$($pmi1),*] [$($pmi2),*])
                                    .iter()
                                    .any(|name| name.as_bytes() == key)
                            {
                                $field = Some(_value);
                                continue;
                            })*)?
                            if dialect == Dialect::Pmi2 && thread.is_none() && key == THREAD_FIELD.as_bytes() {
                                *thread = Some(_value);
                            }
                        }
                        $($(
                            let default: Option<&'static str> = default_text!($($default)?);
                            let names: &'static [&'static str] = field_names!(dialect, [$($pmi1),*] [$($pmi2),*]);
                            let field = names.first().copied().unwrap_or(stringify!($field));
                            let value = $field.or(default.map(str::as_bytes));
                            let name = FieldName { command: const { Command::$variant.name() }, field };
                            let $field = <$type as Value<'a>>::read(name, value)?;
                        )*)?
                        Ok(Request::$variant $({ $($field,)* })?)
                    })*
                    $(Command::$hand => unreachable!("{} is read by hand", $hand_request1),)*
                    Command::Unknown => unreachable!("an unknown command has no fields"),
                }
            }

            /// Writes the fields of a table command.
            pub(super) fn encode_fields(&self, dialect: Dialect, writer: &mut MessageWriter<'_>) {
                match self {
                    $(Request::$variant $({ $($field,)* })? => {
                        $($(
                            let names = field_names!(dialect, [$($pmi1),*] [$($pmi2),*]);
                            writer.table_field(&names[..names.len().min(1)], $field, default_text!($($default)?));
                        )*)?
                    })*
                    $(Request::$hand(_) => unreachable!("{} is written by hand", $hand_request1),)*
                    Request::Unknown { .. } | Request::Malformed { .. } => {}
                }
            }
        }

        /// The table for documentation: one row per command.
        #[allow(clippy::extra_unused_lifetimes)] // The rows' types name it.
        pub fn command_rows<'a>() -> Vec<Row> {
            alloc::vec![
            $(Row {
                name: stringify!($variant),
                doc: &[$($doc),*],
                fields: alloc::vec![$($(FieldRow {
                    name: stringify!($field),
                    kind: <$type as Value>::TYPE,
                    optional: <$type as Value>::OPTIONAL,
                    pmi1: &[$($pmi1),*],
                    pmi2: &[$($pmi2),*],
                    default: default_text!($($default)?),
                },)*)?],
            },)*
            $(Row { name: stringify!($hand), doc: &[$($hand_doc),*], fields: Vec::new() },)*
            ]
        }
    };
}

macro_rules! replies {
    ($(
        $(#[doc = $doc:literal])*
        $variant:ident
        $(($single:ident: $single_type:ty = [$($single1:literal),*] [$($single2:literal),*]))?
        $({ $(
            $(#[doc = $field_doc:literal])*
            $field:ident: $type:ty = [$($pmi1:literal),*] [$($pmi2:literal),*] $(or $default:literal)?;
        )* })?
    )*) => {
        /// The reply to a rank's request.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Reply<'a> {
            $($(#[doc = $doc])* $variant $(($single_type))? $({ $($(#[doc = $field_doc])* $field: $type,)* })?,)*
            /// The key or name does not exist.
            NotFound,
            /// The request failed; `message` says why.
            Failed { message: &'a str },
        }

        /// The shapes of successful replies.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        pub enum ReplyKind {
            $($(#[doc = $doc])* $variant,)*
        }

        impl<'a> Reply<'a> {
            /// Reads a successful reply's fields.
            pub(super) fn decode(kind: ReplyKind, command: Command, fields: &ReplyFields<'a>) -> Result<Self, Problem> {
                let (dialect, command) = (fields.dialect(), command.name());
                match kind {
                    $(ReplyKind::$variant => {
                        $(
                            let names: &'static [&'static str] = field_names!(dialect, [$($single1),*] [$($single2),*]);
                            let field = names.first().copied().unwrap_or(stringify!($single));
                            let $single =
                                <$single_type as Value<'a>>::read(FieldName { command, field }, fields.any_of(names))?;
                        )?
                        $($(
                            let default: Option<&'static str> = default_text!($($default)?);
                            let names: &'static [&'static str] = field_names!(dialect, [$($pmi1),*] [$($pmi2),*]);
                            let field = names.first().copied().unwrap_or(stringify!($field));
                            let value = fields.any_of(names).or(default.map(str::as_bytes));
                            let $field = <$type as Value<'a>>::read(FieldName { command, field }, value)?;
                        )*)?
                        Ok(Reply::$variant $(($single))? $({ $($field,)* })?)
                    })*
                }
            }

            /// Writes the fields, each under all its names.
            pub(super) fn encode_fields(&self, dialect: Dialect, writer: &mut MessageWriter<'_>) {
                match self {
                    $(Reply::$variant $(($single))? $({ $($field,)* })? => {
                        $(writer.table_field(field_names!(dialect, [$($single1),*] [$($single2),*]), $single, None);)?
                        $($(
                            let names = field_names!(dialect, [$($pmi1),*] [$($pmi2),*]);
                            writer.table_field(names, $field, default_text!($($default)?));
                        )*)?
                    })*
                    Reply::NotFound | Reply::Failed { .. } => {}
                }
            }
        }

        /// The replies for documentation: one row per kind.
        #[allow(clippy::extra_unused_lifetimes)] // The rows' types name it.
        pub fn reply_rows<'a>() -> Vec<Row> {
            alloc::vec![$(Row {
            name: stringify!($variant),
            doc: &[$($doc),*],
            fields: alloc::vec![
                $(FieldRow {
                    name: stringify!($single),
                    kind: <$single_type as Value>::TYPE,
                    optional: <$single_type as Value>::OPTIONAL,
                    pmi1: &[$($single1),*],
                    pmi2: &[$($single2),*],
                    default: None,
                },)?
                $($(FieldRow {
                    name: stringify!($field),
                    kind: <$type as Value>::TYPE,
                    optional: <$type as Value>::OPTIONAL,
                    pmi1: &[$($pmi1),*],
                    pmi2: &[$($pmi2),*],
                    default: default_text!($($default)?),
                },)*)?
            ],
        },)*]
        }
    };
}

pub(super) use {commands, default_text, field_names, replies};
