//! System calls without a C library: what a child may do while it shares its parent's memory.
//!
//! The C library would write `errno` into thread-local storage that parent and child have in common here, and
//! may take locks. These calls touch registers only.

#[cfg(target_arch = "x86_64")]
/// # Safety
/// The arguments are valid for the system call `number`.
#[inline(always)]
pub(super) unsafe fn syscall(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let result;
    // SAFETY: the kernel clobbers `rcx` and `r11` only; the caller upholds the rest.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
/// # Safety
/// The arguments are valid for the system call `number`.
#[inline(always)]
pub(super) unsafe fn syscall(number: libc::c_long, arguments: [usize; 4]) -> isize {
    let result;
    // SAFETY: the kernel changes `x0` only; the caller upholds the rest.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0] as isize => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            options(nostack),
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the spawner needs the raw system call of this architecture");
