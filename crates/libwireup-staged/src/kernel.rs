//! System calls without a C library: the loader opens this library as its auditor before it has loaded any other
//! library, and loads no C library for it.

use core::arch::asm;
use core::ffi::{CStr, c_char, c_int, c_long};

/// # Safety
/// The arguments are valid for the system call `number`.
#[cfg(target_arch = "x86_64")]
unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: guaranteed by the caller; these are the kernel's registers, and it changes `rcx` and `r11`.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result, in("rdi") first, in("rsi") second, in("rdx") third,
             in("r10") fourth, in("r8") fifth, in("r9") sixth, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// # Safety
/// The arguments are valid for the system call `number`.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result;
    // SAFETY: guaranteed by the caller; these are the kernel's registers.
    unsafe {
        asm!("svc 0", in("x8") number as isize, inlateout("x0") first as isize => result, in("x1") second,
             in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth, options(nostack));
    }
    result
}

/// A system call that writes nothing into this process's memory, whatever its arguments are. The kernel checks each
/// address that it is passed: if memory at that address cannot be read, the call fails (`EFAULT`).
#[derive(Clone, Copy)]
pub enum Harmless {
    Access = libc::SYS_faccessat as isize,
    Open = libc::SYS_openat as isize,
    Seek = libc::SYS_lseek as isize,
    Close = libc::SYS_close as isize,
    ChangeFolder = libc::SYS_chdir as isize,
    ChangeFolderToOpen = libc::SYS_fchdir as isize,
    ChangeRoot = libc::SYS_chroot as isize,
    Execute = libc::SYS_execve as isize,
    #[cfg(feature = "bare")]
    End = libc::SYS_exit_group as isize,
}

/// The result of the system call, or a negative error number.
pub fn harmless(which: Harmless, [first, second, third, fourth]: [usize; 4]) -> isize {
    // SAFETY: see [`Harmless`].
    unsafe { call(which as c_long, [first, second, third, fourth, 0, 0]) }
}

/// A system call that writes into a buffer.
enum Filling<'a> {
    WorkingFolder,
    /// The target of a symbolic link.
    Link(&'a CStr),
    Read(&'a File),
    ReadAt(&'a File, u64),
}

/// The number of bytes written, or a negative error number.
fn fill(what: Filling<'_>, into: &mut [u8]) -> isize {
    let (at, len) = (into.as_mut_ptr() as usize, into.len());
    let (number, arguments) = match what {
        Filling::WorkingFolder => (libc::SYS_getcwd, [at, len, 0, 0]),
        Filling::Link(path) => (libc::SYS_readlinkat, [HERE, path.as_ptr() as usize, at, len]),
        Filling::Read(file) => (libc::SYS_read, [file.0, at, len, 0]),
        Filling::ReadAt(file, from) => (libc::SYS_pread64, [file.0, at, len, from as usize]),
    };
    let [first, second, third, fourth] = arguments;
    // SAFETY: each of these calls writes at most `len` bytes into the borrowed buffer, and reads a path up to its
    // terminating zero.
    unsafe { call(number, [first, second, third, fourth, 0, 0]) }
}

const HERE: usize = libc::AT_FDCWD as usize;

/// Whether a file exists and `mode` (`F_OK`, `X_OK`) is permitted; or the error.
pub fn permits(path: &CStr, mode: c_int) -> Result<(), c_int> {
    done(harmless(Harmless::Access, [HERE, path.as_ptr() as usize, mode as usize, 0]))
}

fn done(result: isize) -> Result<(), c_int> {
    if result < 0 { Err(-result as c_int) } else { Ok(()) }
}

/// Whether the path exists; a symbolic link without a target exists too.
pub fn exists(path: &CStr) -> Result<(), c_int> {
    // With `O_PATH`, opening does not depend on the file's permission bits.
    File::open_as(path, libc::O_PATH | libc::O_NOFOLLOW).map(drop)
}

/// Reads the target of a symbolic link into `into`; returns its length.
pub fn read_link(path: &CStr, into: &mut [u8]) -> Option<usize> {
    usize::try_from(fill(Filling::Link(path), into)).ok()
}

/// Reads the target of a symbolic link for a C caller; returns its length, or a negative error number.
///
/// # Safety
/// `into` is memory of `len` bytes to which the caller may write.
pub unsafe fn read_link_for_c(folder: c_int, path: *const c_char, into: *mut c_char, len: usize) -> isize {
    // SAFETY: the kernel writes no more than `len` bytes into memory that the caller guarantees, and checks the path.
    unsafe { call(libc::SYS_readlinkat, [folder as usize, path as usize, into as usize, len, 0, 0]) }
}

pub fn working_folder(into: &mut [u8]) -> Option<usize> {
    let read = fill(Filling::WorkingFolder, into);
    // The length includes the final zero; the kernel's text for an unreachable directory does not begin with a slash.
    usize::try_from(read).ok().and_then(|len| len.checked_sub(1)).filter(|_| into[0] == b'/')
}

/// Writes the path of an open file into `into`; returns its length.
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
    len.filter(|len| *len < into.len() && into[0] == b'/')
}

/// `open`, with -1 and `errno` for an error, as the C library returns it.
pub fn open(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    let arguments = [folder as usize, path as usize, flags as usize, mode as usize];
    crate::real::returned(harmless(Harmless::Open, arguments)) as c_int
}

/// A file that is open to be read.
pub struct File(usize);

impl File {
    pub fn open(path: &CStr) -> Result<File, c_int> {
        File::open_as(path, libc::O_RDONLY)
    }

    pub fn open_as(path: &CStr, flags: c_int) -> Result<File, c_int> {
        let flags = (flags | libc::O_CLOEXEC) as usize;
        let opened = harmless(Harmless::Open, [HERE, path.as_ptr() as usize, flags, 0]);
        done(opened).map(|()| File(opened as usize))
    }

    /// Reads from the current position until `into` is full or the file ends.
    pub fn read(&self, into: &mut [u8]) -> usize {
        let mut len = 0;
        while len < into.len() {
            match fill(Filling::Read(self), &mut into[len..]) {
                read @ 1.. => len += read as usize,
                _ => break,
            }
        }
        len
    }

    /// Reads at an offset (bytes) of the file. Returns the number of bytes that were read.
    pub fn read_at(&self, at: u64, into: &mut [u8]) -> usize {
        usize::try_from(fill(Filling::ReadAt(self, at), into)).unwrap_or(0)
    }

    /// Maps the file's content, to be read. The file must not be truncated while the memory is in use.
    pub fn map(&self) -> Option<&'static [u8]> {
        let end = harmless(Harmless::Seek, [self.0, 0, libc::SEEK_END as usize, 0]);
        let len = usize::try_from(end).ok().filter(|len| *len > 0)?;
        mapped(len, libc::PROT_READ, libc::MAP_PRIVATE, self.0).map(|memory| &*memory)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        harmless(Harmless::Close, [self.0, 0, 0, 0]);
    }
}

/// Zeroed memory in whole pages, never freed. Pages that are not touched cost nothing.
pub fn memory(bytes: usize) -> Option<&'static mut [u8]> {
    mapped(bytes, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, usize::MAX)
}

fn mapped(bytes: usize, rights: c_int, flags: c_int, fd: usize) -> Option<&'static mut [u8]> {
    // SAFETY: the kernel chooses addresses that are not in use. They stay mapped until [`Pages`] unmaps its own, when
    // nothing borrows them. [`File::map`] lends its memory, which cannot be written, for reading only.
    unsafe {
        let at = call(libc::SYS_mmap, [0, bytes, rights as usize, flags as usize, fd, 0]);
        (at > 0).then(|| core::slice::from_raw_parts_mut(at as *mut u8, bytes))
    }
}

/// Memory from the kernel, unmapped on drop. If a process after `vfork` executes a program, it is not unmapped in the
/// memory shared with the parent: a rare leak, only for calls that need a new list of arguments or variables.
pub struct Pages(&'static mut [u8]);

impl Pages {
    pub fn new(bytes: usize) -> Option<Pages> {
        memory(bytes).map(Pages)
    }

    /// Returns `pointers` null pointers at the beginning of the memory, and the zeroed bytes after them.
    pub fn split(&mut self, pointers: usize) -> Option<(&mut [*const c_char], &mut [u8])> {
        let (head, rest) = self.0.split_at_mut_checked(pointers.checked_mul(size_of::<*const c_char>())?)?;
        // SAFETY: pages are aligned for pointers, `head` has room for `pointers` of them, any bytes are a valid raw
        // pointer, and `head` stays borrowed.
        Some((unsafe { core::slice::from_raw_parts_mut(head.as_mut_ptr().cast(), pointers) }, rest))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages came from the kernel with this length, and nothing borrows them any more.
        unsafe { call(libc::SYS_munmap, [self.0.as_mut_ptr() as usize, self.0.len(), 0, 0, 0, 0]) };
    }
}
