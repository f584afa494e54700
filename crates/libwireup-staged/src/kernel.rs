//! System calls without a C library: the loader opens this library for its questions before it has opened any other,
//! and looks for none.

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_long};

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

/// Whether a file exists and `mode` (`F_OK`, `X_OK`) is permitted; or the error.
pub fn permits(path: &CStr, mode: c_int) -> Result<(), c_int> {
    // SAFETY: the kernel reads the path to its zero.
    done(unsafe { call(libc::SYS_faccessat, [HERE, path.as_ptr() as usize, mode as usize, 0]) })
}

fn done(result: isize) -> Result<(), c_int> {
    if result < 0 { Err(-result as c_int) } else { Ok(()) }
}

/// Whether there is something, be it a link that leads nowhere.
pub fn exists(path: &CStr) -> Result<(), c_int> {
    // O_PATH opens everything, without a look at its bits.
    File::open_as(path, libc::O_PATH | libc::O_NOFOLLOW).map(drop)
}

/// The length of what was read, or a negative number of an error.
pub fn read_link(path: &CStr, into: &mut [u8]) -> isize {
    // SAFETY: the kernel writes no more than the length that it is given.
    unsafe { call(libc::SYS_readlinkat, [HERE, path.as_ptr() as usize, into.as_mut_ptr() as usize, into.len()]) }
}

pub fn working_folder(into: &mut [u8]) -> Option<usize> {
    // SAFETY: as above.
    let read = unsafe { call(libc::SYS_getcwd, [into.as_mut_ptr() as usize, into.len(), 0, 0]) };
    // With the final zero; a folder that cannot be reached does not begin with a slash.
    usize::try_from(read).ok().and_then(|len| len.checked_sub(1)).filter(|_| into[0] == b'/')
}

/// The path of an open file; its length.
pub fn path_of(fd: c_int, into: &mut [u8]) -> Option<usize> {
    let mut name = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0";
    let (mut left, mut digits) = (u32::try_from(fd).ok()?, 1);
    while left >= 10u32.pow(digits) && digits < 9 {
        digits += 1;
    }
    for digit in (0..digits as usize).rev() {
        *name.get_mut(14 + digit)? = b'0' + (left % 10) as u8;
        left /= 10;
    }
    let len = read_link(CStr::from_bytes_until_nul(&name).ok()?, into);
    usize::try_from(len).ok().filter(|len| *len < into.len() && into[0] == b'/')
}

/// `open`, with its result as the C library returns it.
///
/// # Safety
/// `path` is null, or ends with a zero.
pub unsafe fn open(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the kernel checks the path.
    let opened = unsafe { call(libc::SYS_openat, [folder as usize, path as usize, flags as usize, mode as usize]) };
    crate::real::returned(opened) as c_int
}

/// A file that is open to be read.
pub struct File(usize);

impl File {
    pub fn open(path: &CStr) -> Result<File, c_int> {
        File::open_as(path, libc::O_RDONLY)
    }

    pub fn open_as(path: &CStr, flags: c_int) -> Result<File, c_int> {
        let flags = (flags | libc::O_CLOEXEC) as usize;
        // SAFETY: the kernel reads the path to its zero.
        let opened = unsafe { call(libc::SYS_openat, [HERE, path.as_ptr() as usize, flags, 0]) };
        done(opened).map(|()| File(opened as usize))
    }

    /// Reads from the current place until the memory is full or the file has ended.
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

    /// Reads from a place.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> usize {
        // SAFETY: as above.
        let read = unsafe { call(libc::SYS_pread64, [self.0, into.as_mut_ptr() as usize, into.len(), at as usize]) };
        usize::try_from(read).unwrap_or(0)
    }

    /// Its content, which must not be cut while it is in use.
    pub fn map(&self) -> Option<&'static [u8]> {
        // SAFETY: the end is a place like any other.
        let end = unsafe { call(libc::SYS_lseek, [self.0, 0, libc::SEEK_END as usize, 0]) };
        let len = usize::try_from(end).ok().filter(|len| *len > 0)?;
        let at = mapped(len, libc::PROT_READ, libc::MAP_PRIVATE, self.0 as isize)?;
        // SAFETY: the kernel has just given this memory to nobody else, and it stays.
        Some(unsafe { core::slice::from_raw_parts(at, len) })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: it is ours, and not used any more.
        unsafe { call(libc::SYS_close, [self.0, 0, 0, 0]) };
    }
}

/// Memory that is zero, in whole pages; those that are not touched cost nothing.
pub fn memory(bytes: usize) -> Option<*mut u8> {
    mapped(bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)
}

/// # Safety
/// It came from [`memory`] with this length, and is not used any more.
pub unsafe fn free(at: *mut u8, bytes: usize) {
    // SAFETY: guaranteed by the caller.
    unsafe { call(libc::SYS_munmap, [at as usize, bytes, 0, 0]) };
}

fn mapped(bytes: usize, rights: c_int, flags: c_int, fd: isize) -> Option<*mut u8> {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: six arguments need two registers more than `call` has; the kernel chooses the place.
    let at = unsafe {
        let result: isize;
        asm!("syscall", inlateout("rax") libc::SYS_mmap as isize => result, in("rdi") 0, in("rsi") bytes, in("rdx") rights,
             in("r10") flags, in("r8") fd, in("r9") 0, lateout("rcx") _, lateout("r11") _, options(nostack));
        result
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    let at = unsafe {
        let result: isize;
        asm!("svc 0", in("x8") libc::SYS_mmap as isize, inlateout("x0") 0isize => result, in("x1") bytes, in("x2") rights,
             in("x3") flags, in("x4") fd, in("x5") 0, options(nostack));
        result
    };
    (at > 0).then_some(at as *mut u8)
}

/// What the compiler calls for copies and comparisons; in ordinary programs the C library has these functions.
#[cfg(feature = "bare")]
mod compiler {
    #[cfg(target_arch = "x86_64")]
    use core::arch::asm;
    use core::ffi::c_int;
    use core::ptr;

    /// # Safety
    /// As for the C library's function of this name.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: guaranteed by the caller.
        unsafe {
            asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
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
        #[cfg(target_arch = "x86_64")]
        // SAFETY: guaranteed by the caller.
        unsafe {
            asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _, in("al") byte as u8, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
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
