//! System calls without a C library: the loader opens this library for its questions before it has opened any other, and looks for none.

use core::arch::asm;
use core::ffi::{c_char, c_int, c_long};

/// # Safety
/// As for the system call of this number.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call(number: c_long, arguments: [usize; 4]) -> isize {
    let [first, second, third, fourth] = arguments;
    let result;
    // SAFETY: guaranteed by the caller; these are the kernel's registers.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") first, in("rsi") second, in("rdx") third,
             in("r10") fourth, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// # Safety
/// As for the system call of this number.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call(number: c_long, arguments: [usize; 4]) -> isize {
    let [first, second, third, fourth] = arguments;
    let result;
    // SAFETY: guaranteed by the caller; these are the kernel's registers.
    unsafe {
        asm!("svc 0", in("x8") number as isize, inlateout("x0") first as isize => result, in("x1") second, in("x2") third,
             in("x3") fourth, options(nostack));
    }
    result
}

const HERE: usize = libc::AT_FDCWD as usize;

/// Whether a file exists and `mode` (`F_OK`, `X_OK`) is permitted.
pub fn permits(path: *const c_char, mode: c_int) -> bool {
    // SAFETY: the kernel checks the path.
    unsafe { call(libc::SYS_faccessat, [HERE, path as usize, mode as usize, 0]) == 0 }
}

/// The length of what was read, or a negative number of an error.
pub fn read_link(folder: c_int, path: *const c_char, into: &mut [u8]) -> isize {
    // SAFETY: the kernel writes no more than the length that it is given.
    unsafe { call(libc::SYS_readlinkat, [folder as usize, path as usize, into.as_mut_ptr() as usize, into.len()]) }
}

pub fn working_folder(into: &mut [u8]) -> Option<usize> {
    // SAFETY: as above.
    let read = unsafe { call(libc::SYS_getcwd, [into.as_mut_ptr() as usize, into.len(), 0, 0]) };
    // With the final zero; a folder that cannot be reached does not begin with a slash.
    usize::try_from(read).ok().and_then(|len| len.checked_sub(1)).filter(|_| into[0] == b'/')
}

/// A file that is open to be read.
pub struct File(usize);

impl File {
    pub fn open(path: *const c_char) -> Option<File> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        // SAFETY: the kernel checks the path.
        usize::try_from(unsafe { call(libc::SYS_openat, [HERE, path as usize, flags, 0]) }).ok().map(File)
    }

    /// Reads until the memory is full or the file has ended.
    pub fn read(&self, into: &mut [u8]) -> usize {
        let mut len = 0;
        while len < into.len() {
            let rest = &mut into[len..];
            // SAFETY: the kernel writes no more than the length that it is given.
            match unsafe { call(libc::SYS_read, [self.0, rest.as_mut_ptr() as usize, rest.len(), 0]) } {
                read @ 1.. => len += read as usize,
                _ => break,
            }
        }
        len
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it is ours, and not used any more.
        unsafe { call(libc::SYS_close, [self.0, 0, 0, 0]) };
    }
}

/// Memory that is zero and stays, in whole pages; those that are not touched cost nothing.
pub fn memory(bytes: usize) -> Option<&'static mut [u8]> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: six arguments need two registers more than `call` has; the kernel chooses the place.
    let at = unsafe {
        let result: isize;
        asm!("syscall", inlateout("rax") libc::SYS_mmap as isize => result, in("rdi") 0, in("rsi") bytes,
             in("rdx") libc::PROT_READ | libc::PROT_WRITE, in("r10") libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, in("r8") -1isize,
             in("r9") 0, lateout("rcx") _, lateout("r11") _, options(nostack));
        result
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    let at = unsafe {
        let result: isize;
        asm!("svc 0", in("x8") libc::SYS_mmap as isize, inlateout("x0") 0isize => result, in("x1") bytes,
             in("x2") libc::PROT_READ | libc::PROT_WRITE, in("x3") libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, in("x4") -1isize,
             in("x5") 0, options(nostack));
        result
    };
    // SAFETY: the kernel has just given this memory to nobody else.
    (at > 0).then(|| unsafe { core::slice::from_raw_parts_mut(at as *mut u8, bytes) })
}

/// What the compiler calls for copies and comparisons; in ordinary programs the C library has these functions.
#[cfg(feature = "bare")]
mod compiler {
    use core::ffi::c_int;
    use core::ptr;

    /// # Safety
    /// As for the C library's function of this name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        for at in 0..len {
            // Volatile, so that the compiler does not see that this is `memcpy`.
            // SAFETY: guaranteed by the caller.
            unsafe { ptr::write_volatile(to.add(at), ptr::read(from.add(at))) };
        }
        to
    }

    /// # Safety
    /// As for the C library's function of this name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        if to.cast_const() <= from {
            // SAFETY: guaranteed by the caller; it copies from the first byte to the last.
            return unsafe { memcpy(to, from, len) };
        }
        for at in (0..len).rev() {
            // SAFETY: guaranteed by the caller.
            unsafe { ptr::write_volatile(to.add(at), ptr::read(from.add(at))) };
        }
        to
    }

    /// # Safety
    /// As for the C library's function of this name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, byte: c_int, len: usize) -> *mut u8 {
        for at in 0..len {
            // SAFETY: guaranteed by the caller.
            unsafe { ptr::write_volatile(to.add(at), byte as u8) };
        }
        to
    }

    /// # Safety
    /// As for the C library's function of this name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> c_int {
        for at in 0..len {
            // SAFETY: guaranteed by the caller.
            let (one, other) = unsafe { (ptr::read_volatile(one.add(at)), ptr::read_volatile(other.add(at))) };
            if one != other {
                return c_int::from(one) - c_int::from(other);
            }
        }
        0
    }

    /// # Safety
    /// As for the C library's function of this name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(one: *const u8, other: *const u8, len: usize) -> c_int {
        // SAFETY: guaranteed by the caller.
        unsafe { memcmp(one, other, len) }
    }

    /// # Safety
    /// As for the C library's function of this name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn strlen(text: *const u8) -> usize {
        let mut len = 0;
        // SAFETY: guaranteed by the caller: it ends with a zero.
        while unsafe { ptr::read_volatile(text.add(len)) } != 0 {
            len += 1;
        }
        len
    }
}
