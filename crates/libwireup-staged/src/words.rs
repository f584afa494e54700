//! Functions that start a program and get its words one by one.
//!
//! Rust has no functions with a variable number of parameters. So a few instructions note where they are: some in
//! registers, the rest on the stack.

use crate::kernel;
use crate::real;
use crate::start::Words;
use core::arch::global_asm;
use core::ffi::{c_char, c_int};
use core::ptr;

#[cfg(target_arch = "x86_64")]
const IN_REGISTERS: usize = 5;
#[cfg(target_arch = "aarch64")]
const IN_REGISTERS: usize = 7;

/// Words that need no memory from the kernel.
const SMALL: usize = 64;

#[cfg(target_arch = "x86_64")]
macro_rules! words {
    ($name:literal, $to:literal) => {
        global_asm!(concat!(
            ".globl ",
            $name,
            "\n.type ",
            $name,
            ", @function\n",
            $name,
            ":\n",
            "push r9\npush r8\npush rcx\npush rdx\npush rsi\n",
            "mov rsi, rsp\nlea rdx, [rsp + 48]\ncall ",
            $to,
            "\nadd rsp, 40\nret\n",
            ".size ",
            $name,
            ", . - ",
            $name,
            "\n"
        ));
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! words {
    ($name:literal, $to:literal) => {
        global_asm!(concat!(
            ".globl ", $name, "\n.type ", $name, ", %function\n", $name, ":\n",
            "stp x29, x30, [sp, #-80]!\nmov x29, sp\nstp x1, x2, [sp, #16]\nstp x3, x4, [sp, #32]\nstp x5, x6, [sp, #48]\nstr x7, [sp, #64]\n",
            "add x1, sp, #16\nadd x2, sp, #80\nbl ", $to, "\nldp x29, x30, [sp], #80\nret\n",
            ".size ", $name, ", . - ", $name, "\n"
        ));
    };
}

words!("execl", "wireup_staged_execl");
words!("execle", "wireup_staged_execle");
words!("execlp", "wireup_staged_execlp");

unsafe extern "C" {
    fn execve(path: *const c_char, words: Words, env: Words) -> c_int;
    fn execvpe(path: *const c_char, words: Words, env: Words) -> c_int;
}

/// # Safety
/// Word `at` exists.
unsafe fn word(registers: Words, stack: Words, at: usize) -> *const c_char {
    // SAFETY: guaranteed by the caller.
    unsafe { if at < IN_REGISTERS { *registers.add(at) } else { *stack.add(at - IN_REGISTERS) } }
}

/// Calls with a list of the words, and with what comes behind their end.
///
/// # Safety
/// The words end with a null.
unsafe fn with_list(registers: Words, stack: Words, call: impl FnOnce(Words, usize) -> c_int) -> c_int {
    let mut count = 0;
    // SAFETY: guaranteed by the caller.
    while !unsafe { word(registers, stack, count) }.is_null() {
        count += 1;
    }
    let mut small = [ptr::null(); SMALL];
    let bytes = (count + 1) * size_of::<usize>();
    let large = if count < SMALL { None } else { kernel::memory(bytes) };
    let list: *mut *const c_char = match large {
        Some(memory) => memory.cast(),
        None if count < SMALL => small.as_mut_ptr(),
        None => return real::fail(libc::ENOMEM),
    };
    for at in 0..count {
        // SAFETY: the list has this length; behind it is a null.
        unsafe { *list.add(at) = word(registers, stack, at) };
    }
    let result = call(list, count);
    if let Some(memory) = large {
        // SAFETY: it came from there.
        unsafe { kernel::free(memory, bytes) };
    }
    result
}

/// # Safety
/// As for `execl`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wireup_staged_execl(path: *const c_char, registers: Words, stack: Words) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { with_list(registers, stack, |words, _| execve(path, words, real::environment())) }
}

/// # Safety
/// As for `execle`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wireup_staged_execle(path: *const c_char, registers: Words, stack: Words) -> c_int {
    // SAFETY: guaranteed by the caller: behind the null is the environment.
    unsafe { with_list(registers, stack, |words, count| execve(path, words, word(registers, stack, count + 1).cast())) }
}

/// # Safety
/// As for `execlp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wireup_staged_execlp(file: *const c_char, registers: Words, stack: Words) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { with_list(registers, stack, |words, _| execvpe(file, words, real::environment())) }
}
