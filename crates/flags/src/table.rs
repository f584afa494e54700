//! A table of flags: each row defines a flag, how its value is read, and the field that holds it.
//!
//! [`flag_table!`](crate::flag_table) turns the rows into constants of type [`Flag`](crate::Flag), sections for a
//! [`Command`](crate::Command), and one struct with a field for each row that states a type. Rows without a type write
//! into the field of another row, or into a part of it. A row reads
//!
//! ```text
//!   NAME = Flag::value(&["--name"], "N", "Help.") => field: Option<u32> = Value::number;
//! ```

use crate::error::Error;
use crate::value::Value;

/// What the values of a flag are written into.
pub trait Slot<T> {
    fn put(&mut self, value: T);
}

/// The last value replaces the ones before.
impl<T> Slot<T> for T {
    fn put(&mut self, value: T) {
        *self = value;
    }
}

/// The last value replaces the ones before.
impl<T> Slot<T> for Option<T> {
    fn put(&mut self, value: T) {
        *self = Some(value);
    }
}

/// Every value is appended, in the order typed.
impl<T> Slot<T> for Vec<T> {
    fn put(&mut self, value: T) {
        self.push(value);
    }
}

pub fn write<T>(
    slot: &mut impl Slot<T>,
    value: &Value,
    read: impl Fn(&Value) -> Result<T, Error>,
) -> Result<(), Error> {
    slot.put(read(value)?);
    Ok(())
}

/// The value of a flag that takes none; there is nothing to refuse.
pub fn on(_: &Value) -> Result<bool, Error> {
    Ok(true)
}

/// Defines the flags of a command and the struct of their values; see the head of this module. A row without a field is
/// a flag that is accepted and means nothing.
#[macro_export]
macro_rules! flag_table {
    (
        $(#[$meta:meta])*
        pub struct $Values:ident { $($extra:tt)* }
        $([$SECTION:ident: $title:literal] $(
            $NAME:ident = $flag:expr
                $(=> $field:ident $(. $part:ident)* $([$at:literal])? $(: $type:ty)? = $read:expr)?;
        )*)*
    ) => {
        $(#[$meta])*
        pub struct $Values { $($extra)* $($($($(pub $field: $type,)?)?)*)* }

        $($(pub const $NAME: $crate::Flag = $flag;)*)*
        $(pub const $SECTION: &[$crate::Flag] = &[$($NAME),*];)*
        const SECTIONS: &[$crate::Section] = &[$($crate::Section { title: $title, flags: $SECTION }),*];

        impl $Values {
            /// The values on a line, with the defaults of the table. Flags that the table lacks are left out.
            pub fn read(line: &$crate::Line) -> Result<$Values, $crate::Error> {
                let mut values = $Values::default();
                for flag in [$($($NAME),*),*] {
                    flag.default_value().map_or(Ok(()), |value| values.write(flag, &value))?;
                }
                for given in &line.given {
                    values.write(*given.flag, &given.value)?;
                }
                Ok(values)
            }

            /// Writes a value into the field of its flag, if the table has that.
            pub fn write(&mut self, flag: $crate::Flag, value: &$crate::Value) -> Result<(), $crate::Error> {
                match flag.name() {
                    $($($(
                        name if name == $NAME.name() => {
                            $crate::table::write(&mut self.$field $(.$part)* $([$at])?, value, $read)
                        }
                    )?)*)*
                    _ => Ok(()),
                }
            }

            /// The first of these flags whose field differs from that of an empty line.
            pub fn first_given(&self, among: &[$crate::Flag]) -> Option<$crate::Flag> {
                let fields = [$($($($(($NAME, self.$field != <$type>::default()),)?)?)*)*];
                among.iter().find(|flag| fields.iter().any(|(known, given)| *given && known == *flag)).copied()
            }

            /// Takes these flags back: their fields become those of an empty line.
            pub fn take_back(&mut self, flags: &[$crate::Flag]) {
                $($($($(if flags.contains(&$NAME) {
                    self.$field = <$type>::default();
                })?)?)*)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::on;
    use crate::{Command, Flag, Value, Words};

    flag_table! {
        #[derive(PartialEq, Debug, Default)]
        pub struct Values {
            pair: [u32; 2],
        }

        [FLAGS: "Flags"]

        COUNT = Flag::value(&["--count"], "N", "A number.").or("3") => count: u32 = Value::number;
        NAME = Flag::value(&["--name"], "NAME", "A name.") => name: Option<String> = Value::text;
        HOST = Flag::value(&["--host"], "HOST", "A host.") => hosts: Vec<String> = Value::text;
        LOUD = Flag::switch(&["--loud"], "More.") => loud: bool = on;
        SECOND = Flag::value(&["--second"], "N", "A part.") => pair[1] = |value| value.number_in(1, 9);
        IGNORED = Flag::switch(&["--ignored"], "");
    }

    const TRY: Command = Command::example(Words::Named(&[]), SECTIONS);

    fn values(line: &str) -> Result<Values, String> {
        let line = TRY.parse(line.split_whitespace().map(Into::into)).map_err(|error| error.to_string())?;
        Values::read(&line.expect("no help")).map_err(|error| error.to_string())
    }

    #[test]
    fn each_row_writes_into_its_field() {
        let without = Values { count: 3, ..Values::default() };
        assert_eq!(values("--ignored"), Ok(without));
        let all = values("--host a --name x --loud --host b --second 4 --name y --count 5").expect("valid");
        let hosts = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(all, Values { pair: [0, 4], count: 5, name: Some("y".into()), hosts, loud: true });
        assert_eq!(values("--second 10 --second 2"), Err("--second 10: give a whole number from 1 to 9".into()));
    }

    #[test]
    fn given_flags_are_known_by_their_fields() {
        let mut values = values("--loud --host a").expect("valid");
        assert_eq!(values.first_given(&[NAME, LOUD, HOST]), Some(LOUD));
        assert_eq!(values.first_given(&[NAME, SECOND]), None);
        values.take_back(&[NAME, LOUD]);
        assert_eq!(values.first_given(&[NAME, LOUD, HOST]), Some(HOST));
    }
}
