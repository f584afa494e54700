//! Functions that start a program and get its arguments as variadic parameters (`execl` and the like).
//!
//! Stable Rust cannot define variadic functions. So a few assembler instructions pass the places of the arguments: the
//! first ones are in registers, the rest on the stack.

use crate::arguments::{Argument, CText, Words};
use crate::exec::{execute, search_and_execute};
use crate::real;
use crate::start::{Command, returned, with_list};
use core::arch::global_asm;
use core::ffi::{c_char, c_int};

#[cfg(target_arch = "x86_64")]
const IN_REGISTERS: usize = 5;
#[cfg(target_arch = "aarch64")]
const IN_REGISTERS: usize = 7;

/// Pushes the argument registers, calls `$to` with the address of these and of the arguments on the stack, and returns.
#[cfg(target_arch = "x86_64")]
macro_rules! pass_on {
    ($to:literal) => {
        concat!(
            "push r9\npush r8\npush rcx\npush rdx\npush rsi\nmov rsi, rsp\nlea rdx, [rsp + 48]\ncall ",
            $to,
            "\nadd rsp, 40\nret\n"
        )
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! pass_on {
    ($to:literal) => {
        concat!(
            "stp x29, x30, [sp, #-80]!\nmov x29, sp\nstp x1, x2, [sp, #16]\nstp x3, x4, [sp, #32]\n",
            "stp x5, x6, [sp, #48]\nstr x7, [sp, #64]\nadd x1, sp, #16\nadd x2, sp, #80\nbl ",
            $to,
            "\nldp x29, x30, [sp], #80\nret\n"
        )
    };
}

macro_rules! words {
    ($name:literal, $to:literal) => {
        global_asm!(
            concat!(".globl ", $name, "\n.type ", $name, ", %function\n", $name, ":\n"),
            pass_on!($to),
            concat!(".size ", $name, ", . - ", $name)
        );
    };
}

// Under a test these symbols have other names: with their own names they would replace the test program's functions.
#[cfg(not(test))]
words!("execl", "wireup_staged_execl");
#[cfg(not(test))]
words!("execle", "wireup_staged_execle");
#[cfg(not(test))]
words!("execlp", "wireup_staged_execlp");
#[cfg(test)]
words!("tested_execl", "wireup_staged_execl");
#[cfg(test)]
words!("tested_execle", "wireup_staged_execle");
#[cfg(test)]
words!("tested_execlp", "wireup_staged_execlp");

type List = *const *const c_char;

/// The arguments of a call: the first ones came in registers and were pushed on the stack, the others are after them.
#[derive(Clone, Copy)]
struct Given {
    registers: List,
    stack: List,
}

impl Given {
    /// # Safety
    /// The function was called with a word or a null at this place.
    unsafe fn at(self, at: usize) -> *const c_char {
        // SAFETY: guaranteed by the caller.
        unsafe { if at < IN_REGISTERS { *self.registers.add(at) } else { *self.stack.add(at - IN_REGISTERS) } }
    }

    /// Calls `call` with a list of the arguments, and with the index of the null at their end.
    ///
    /// # Safety
    /// The arguments are C strings, and a null follows them.
    unsafe fn with_list(self, call: impl FnOnce(Words<'_>, usize) -> c_int) -> c_int {
        // SAFETY: guaranteed by the caller: nothing after the null is read.
        let word = |at: usize| unsafe { CText::from_c(self.at(at)) };
        let mut count = 0;
        while !word(count).is_null() {
            count += 1;
        }
        returned(with_list(count, (0..count).map(word), |words| call(words, count)))
    }
}

/// # Safety
/// The requirements of the C library's `execl`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wireup_staged_execl(path: *const c_char, registers: List, stack: List) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let path = CText::from_c(path);
        Given { registers, stack }.with_list(|words, _| execute(Command { path, words, env: real::environment() }))
    }
}

/// # Safety
/// The requirements of the C library's `execle`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wireup_staged_execle(path: *const c_char, registers: List, stack: List) -> c_int {
    let given = Given { registers, stack };
    // SAFETY: guaranteed by the caller: the environment follows the null.
    unsafe {
        let path = CText::from_c(path);
        given.with_list(|words, end| execute(Command { path, words, env: Words::from_c(given.at(end + 1).cast()) }))
    }
}

/// # Safety
/// The requirements of the C library's `execlp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wireup_staged_execlp(file: *const c_char, registers: List, stack: List) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let path = CText::from_c(file);
        let given = Given { registers, stack };
        given.with_list(|words, _| search_and_execute(Command { path, words, env: real::environment() }))
    }
}
