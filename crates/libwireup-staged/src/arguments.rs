//! The border with C: what callers pass becomes a type that is safe to use, once, where a function begins.

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use core::iter::from_fn;
use core::marker::PhantomData;
use core::ptr;

/// A parameter of a function that replaces one of the C library.
pub trait Argument {
    /// What the caller passes.
    type C;

    /// # Safety
    /// `given` is what the C library's function demands at this place, until the function returns.
    unsafe fn from_c(given: Self::C) -> Self;

    /// What the caller has passed.
    fn to_c(self) -> Self::C;
}

/// Types that are passed on as they are.
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

plain!(c_int, c_uint, c_long, isize, usize, u64, *const c_void, *mut c_void, *mut c_char, *mut u64, *mut libc::pid_t);

/// A text of the caller, or null. It is read only when somebody looks at it: where nothing is staged, the kernel alone
/// judges a pointer.
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

    /// `None`: null.
    pub fn text(self) -> Option<&'a CStr> {
        // SAFETY: it is a text that ends with a zero, as `from_c` demands of what is not null, or was one in Rust.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) })
    }

    pub fn bytes(self) -> Option<&'a [u8]> {
        self.text().map(CStr::to_bytes)
    }

    /// Whether it is null or has no characters.
    pub fn is_empty(self) -> bool {
        self.bytes().is_none_or(<[u8]>::is_empty)
    }

    /// Whether it begins at the root.
    pub fn is_absolute(self) -> bool {
        self.bytes().is_some_and(|bytes| bytes.starts_with(b"/"))
    }
}

/// A list of texts that ends with a null; or none at all: the words of a program, its environment.
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
            // SAFETY: `from_c` demands null or a list that ends with a null, behind which nothing is read.
            let word = unsafe { next.as_ref() }.filter(|word| !word.is_null())?;
            next = next.wrapping_add(1);
            Some(CText(*word, PhantomData))
        })
    }
}

/// A list of texts that is being made in memory that is lent.
pub struct NewWords<'a> {
    room: &'a mut [*const c_char],
    len: usize,
}

impl<'a> NewWords<'a> {
    /// One of `room` stays for the null at the end.
    pub fn new(room: &'a mut [*const c_char]) -> Option<NewWords<'a>> {
        *room.first_mut()? = ptr::null();
        Some(NewWords { room, len: 0 })
    }

    /// `None`: there is no room; the list is as it was.
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

/// A function that replaces the C library's of this name. The body gets what is safe to use.
macro_rules! interposed {
    ($(#[$note:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty $body:block) => {
        $(#[$note])*
        ///
        /// # Safety
        /// As for the C library's function of this name.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub(crate) unsafe extern "C" fn $name(
            $($argument: <$type as $crate::arguments::Argument>::C),*
        ) -> $result {
            // SAFETY: the caller passes what the C library's function of this name demands.
            $(let $argument = unsafe { <$type as $crate::arguments::Argument>::from_c($argument) };)*
            $body
        }
    };
}
pub(crate) use interposed;
