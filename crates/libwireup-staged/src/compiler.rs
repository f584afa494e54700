//! Memory functions to which the compiler generates calls; in ordinary programs the C library provides them.

#[cfg(target_arch = "x86_64")]
use core::arch::asm;
use core::ffi::c_int;
use core::ptr;

/// # Safety
/// The requirements of the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
             options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..len {
        // Volatile, so that the compiler does not turn this loop into a call of `memcpy`, that is, of itself.
        // SAFETY: guaranteed by the caller.
        unsafe { ptr::write_volatile(to.add(at), ptr::read(from.add(at))) };
    }
    to
}

/// # Safety
/// The requirements of the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if to.cast_const() <= from {
        // SAFETY: guaranteed by the caller; `memcpy` copies from the first byte to the last, so an overlap does no
        // harm.
        return unsafe { memcpy(to, from, len) };
    }
    for at in (0..len).rev() {
        // SAFETY: guaranteed by the caller.
        unsafe { ptr::write_volatile(to.add(at), ptr::read(from.add(at))) };
    }
    to
}

/// # Safety
/// The requirements of the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: c_int, len: usize) -> *mut u8 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: guaranteed by the caller.
    unsafe {
        asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") byte as u8,
             options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..len {
        // SAFETY: guaranteed by the caller.
        unsafe { ptr::write_volatile(to.add(at), byte as u8) };
    }
    to
}

/// # Safety
/// The requirements of the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> c_int {
    let mut begin = 0;
    while len - begin >= 8 {
        // SAFETY: guaranteed by the caller.
        let (one, other) = unsafe {
            (ptr::read_unaligned(one.add(begin).cast::<u64>()), ptr::read_unaligned(other.add(begin).cast::<u64>()))
        };
        if one != other {
            break;
        }
        begin += 8;
    }
    for at in begin..len {
        // SAFETY: guaranteed by the caller.
        let (one, other) = unsafe { (ptr::read_volatile(one.add(at)), ptr::read_volatile(other.add(at))) };
        if one != other {
            return c_int::from(one) - c_int::from(other);
        }
    }
    0
}

/// # Safety
/// The requirements of the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, len: usize) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { memcmp(one, other, len) }
}

/// # Safety
/// The requirements of the C library's function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let mut len = 0;
    // SAFETY: guaranteed by the caller: the text ends with a zero.
    while unsafe { ptr::read_volatile(text.add(len)) } != 0 {
        len += 1;
    }
    len
}
