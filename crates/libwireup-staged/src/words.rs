//! Functions that start a program and get its words one by one.
//!
//! Rust has no functions with a variable number of parameters. So a few instructions note where they are: some in
//! registers, the rest on the stack.

use crate::arguments::{Argument, CText, NewWords, Words};
use crate::exec::{execute, search_and_execute};
use crate::kernel::Pages;
use crate::real;
use crate::start::Command;
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
            ".globl ", $name, "\n.type ", $name, ", @function\n", $name, ":\n",
            "push r9\npush r8\npush rcx\npush rdx\npush rsi\n", "mov rsi, rsp\nlea rdx, [rsp + 48]\ncall ", $to,
            "\nadd rsp, 40\nret\n", ".size ", $name, ", . - ", $name, "\n"
        ));
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! words {
    ($name:literal, $to:literal) => {
        global_asm!(concat!(
            ".globl ",
            $name,
            "\n.type ",
            $name,
            ", %function\n",
            $name,
            ":\n",
            "stp x29, x30, [sp, #-80]!\nmov x29, sp\nstp x1, x2, [sp, #16]\nstp x3, x4, [sp, #32]\n",
            "stp x5, x6, [sp, #48]\nstr x7, [sp, #64]\n",
            "add x1, sp, #16\nadd x2, sp, #80\nbl ",
            $to,
            "\nldp x29, x30, [sp], #80\nret\n",
            ".size ",
            $name,
            ", . - ",
            $name,
            "\n"
        ));
    };
}

// A test calls them under other names: under these it would replace its own.
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

/// Where the words of a call are: the first ones in registers that were put on the stack, the others behind them.
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

    /// Calls with a list of the words, and with the place of the null at their end.
    ///
    /// # Safety
    /// The words are texts, and end with a null.
    unsafe fn with_list(self, call: impl FnOnce(Words<'_>, usize) -> c_int) -> c_int {
        // SAFETY: guaranteed by the caller: nothing behind the null is read.
        let word = |at: usize| unsafe { CText::from_c(self.at(at)) };
        let mut count = 0;
        while !word(count).is_null() {
            count += 1;
        }
        let mut small = [ptr::null(); SMALL];
        let mut large = if count < SMALL { None } else { Pages::new((count + 1) * size_of::<usize>()) };
        let room = match &mut large {
            Some(pages) => pages.split(count + 1).map(|(list, _)| list),
            None => small.get_mut(..count + 1),
        };
        let list = room.and_then(NewWords::new).and_then(|mut list| {
            (0..count).try_for_each(|at| list.push(word(at)))?;
            Some(list)
        });
        list.map_or_else(|| real::fail(libc::ENOMEM), |list| call(list.words(), count))
    }
}

/// # Safety
/// As for `execl`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wireup_staged_execl(path: *const c_char, registers: List, stack: List) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let path = CText::from_c(path);
        Given { registers, stack }.with_list(|words, _| execute(Command { path, words, env: real::environment() }))
    }
}

/// # Safety
/// As for `execle`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wireup_staged_execle(path: *const c_char, registers: List, stack: List) -> c_int {
    let given = Given { registers, stack };
    // SAFETY: guaranteed by the caller: behind the null is the environment.
    unsafe {
        let path = CText::from_c(path);
        given.with_list(|words, end| execute(Command { path, words, env: Words::from_c(given.at(end + 1).cast()) }))
    }
}

/// # Safety
/// As for `execlp`.
#[unsafe(no_mangle)]
unsafe extern "C" fn wireup_staged_execlp(file: *const c_char, registers: List, stack: List) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let path = CText::from_c(file);
        let given = Given { registers, stack };
        given.with_list(|words, _| search_and_execute(Command { path, words, env: real::environment() }))
    }
}
