//! The C interface: turns each argument of a replaced C function into a type that is safe to use, once per call.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use core::iter::from_fn;
use core::marker::PhantomData;
use core::ptr;

/// A type for the parameters of the functions that replace functions of the C library.
pub trait Argument {
    /// The C type in which the caller passes the argument.
    type C;

    /// # Safety
    /// `given` meets the requirements of the replaced C function for this argument until the replacement returns.
    unsafe fn from_c(given: Self::C) -> Self;

    /// The argument in its C type, unchanged.
    fn to_c(self) -> Self::C;
}

/// Implements `Argument` for types that are passed on unchanged.
macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Argument for $type {
            type C = $type;

            unsafe fn from_c(given: $type) -> $type {
                given
            }

            fn to_c(self) -> $type {
                self
            }
        }
    )*};
}

plain! {
    c_int, c_uint, c_long, isize, usize, u64, *const c_void, *mut c_void, *mut c_char, *mut u64, *mut usize,
    *mut libc::pid_t
}

/// A C string passed by the caller, or null. It is read only when its text is asked for: if no files are staged, an
/// invalid pointer reaches only the kernel, which reports it.
#[derive(Clone, Copy)]
pub struct CText<'a>(*const c_char, PhantomData<&'a CStr>);

impl Argument for CText<'_> {
    type C = *const c_char;

    unsafe fn from_c(given: *const c_char) -> Self {
        CText(given, PhantomData)
    }

    fn to_c(self) -> *const c_char {
        self.as_ptr()
    }
}

impl<'a> From<&'a CStr> for CText<'a> {
    fn from(text: &'a CStr) -> Self {
        CText(text.as_ptr(), PhantomData)
    }
}

impl<'a> CText<'a> {
    pub fn as_ptr(self) -> *const c_char {
        self.0
    }

    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The text; `None` if the pointer is null.
    pub fn text(self) -> Option<&'a CStr> {
        // SAFETY: the pointer is not null, so it is a text that ends with a zero, as `from_c` demands, or comes from a
        // `CStr`.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        self.text().map(CStr::to_bytes)
    }

    /// Whether the pointer is null or the text is empty.
    pub fn is_empty(self) -> bool {
        self.bytes().is_none_or(<[u8]>::is_empty)
    }

    /// Whether the path begins with a slash.
    pub fn is_absolute(self) -> bool {
        self.bytes().is_some_and(|bytes| bytes.starts_with(b"/"))
    }
}

/// A null-terminated array of C strings (arguments or environment of a program), or a null pointer.
#[derive(Clone, Copy)]
pub struct Words<'a>(*const *const c_char, PhantomData<&'a CStr>);

impl Argument for Words<'_> {
    type C = *const *const c_char;

    unsafe fn from_c(given: *const *const c_char) -> Self {
        Words(given, PhantomData)
    }

    fn to_c(self) -> *const *const c_char {
        self.as_ptr()
    }
}

impl<'a> Words<'a> {
    pub fn as_ptr(self) -> *const *const c_char {
        self.0
    }

    pub fn all(self) -> impl Iterator<Item = CText<'a>> + Clone {
        let mut next = self.0;
        from_fn(move || {
            // SAFETY: `from_c` demands null or a list that ends with a null; nothing after that null is read.
            let word = unsafe { next.as_ref() }.filter(|word| !word.is_null())?;
            next = next.wrapping_add(1);
            Some(CText(*word, PhantomData))
        })
    }
}

/// A null-terminated array of C strings that is being built in the borrowed array `room`.
pub struct NewWords<'a> {
    room: &'a mut [*const c_char],
    len: usize,
}

impl<'a> NewWords<'a> {
    /// The last element of `room` is reserved for the terminating null.
    pub fn new(room: &'a mut [*const c_char]) -> Option<NewWords<'a>> {
        *room.first_mut()? = ptr::null();
        Some(NewWords { room, len: 0 })
    }

    /// `None`: the array is full; the list is unchanged.
    pub fn push(&mut self, text: CText<'a>) -> Option<()> {
        *self.room.get_mut(self.len + 1)? = ptr::null();
        self.room[self.len] = text.0;
        self.len += 1;
        Some(())
    }

    pub fn words(&self) -> Words<'_> {
        Words(self.room.as_ptr(), PhantomData)
    }
}

/// Defines functions that replace the C library's functions of these names. Their bodies work on [`Argument`] types.
macro_rules! interposed {
    ($($(#[$note:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block)*) => {$(
        $(#[$note])*
        ///
        /// # Safety
        /// The requirements of the C library's function of this name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name(
            $($argument: <$type as $crate::arguments::Argument>::C),*
        ) -> $result {
            // SAFETY: the caller passes what the C library's function of this name demands.
            $(let $argument = unsafe { <$type as $crate::arguments::Argument>::from_c($argument) };)*
            $body
        }
    )*};
}
pub(crate) use interposed;
