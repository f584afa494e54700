//! Makes system calls without the C library, for a child that shares its parent's memory.
//!
//! The C library would write `errno` into thread-local storage, which parent and child share here, and may take locks;
//! musl's `clone` also refuses the flags used here. The calls in this file touch registers only.

use libc::{c_int, c_long};

/// The child's entry point, to which the spawner's pointer is passed; it never returns.
pub(super) type Entry<T> = extern "C" fn(*mut T) -> !;

#[cfg(target_arch = "x86_64")]
/// # Safety
/// The arguments are valid for the system call `number`.
#[inline(always)]
pub(super) unsafe fn syscall(number: c_long, arguments: [usize; 4]) -> isize {
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

#[cfg(target_arch = "x86_64")]
/// Starts a process in this process's memory that calls `entry(task)` on a stack that ends at `top`. Returns its pid,
/// or a negated errno. The kernel clears `cleared` when the process no longer uses the memory, if `flags` request that.
///
/// # Safety
/// The flags contain `CLONE_VM` and not `CLONE_SETTLS`. `top` ends a stack that nothing else uses, aligned to 16 bytes.
/// `entry` never returns. The stack, and what `entry` needs of the task, stay valid until the process no longer uses
/// the memory.
#[inline(never)]
pub(super) unsafe fn clone<T>(flags: c_int, top: *mut u8, entry: Entry<T>, task: *mut T, cleared: *mut u32) -> isize {
    let result;
    // SAFETY: the parent only makes a system call. The child has the same registers except `rax` and the stack pointer,
    // and calls `entry` from there, with a return address that is never used. `rcx` and `r11`, which the kernel
    // clobbers, hold nothing.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, {task}",
            "call {entry}",
            "ud2",
            "2:",
            task = in(reg) task,
            entry = in(reg) entry,
            inout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags as usize,
            in("rsi") top,
            in("rdx") 0usize,
            in("r10") cleared,
            in("r8") 0usize,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
/// # Safety
/// The arguments are valid for the system call `number`.
#[inline(always)]
pub(super) unsafe fn syscall(number: c_long, arguments: [usize; 4]) -> isize {
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

#[cfg(target_arch = "aarch64")]
/// Like the version for x86-64.
///
/// # Safety
/// The requirements of the version for x86-64.
#[inline(never)]
pub(super) unsafe fn clone<T>(flags: c_int, top: *mut u8, entry: Entry<T>, task: *mut T, cleared: *mut u32) -> isize {
    let result;
    // SAFETY: the parent only makes a system call. The child has the same registers except `x0` and the stack pointer,
    // and calls `entry` from there.
    unsafe {
        core::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, {task}",
            "blr {entry}",
            "brk 1",
            "2:",
            task = in(reg) task,
            entry = in(reg) entry,
            in("x8") libc::SYS_clone,
            inout("x0") flags as isize => result,
            in("x1") top,
            in("x2") 0usize,
            in("x3") 0usize,
            in("x4") cleared,
            options(nostack),
        );
    }
    result
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the spawner needs the raw system calls of this architecture");
