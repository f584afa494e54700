//! Memory from the C library; a panic ends the process.

use core::alloc::{GlobalAlloc, Layout};

struct Libc;

/// What `malloc` aligns to on every platform with 64-bit pointers.
const MALLOC_ALIGN: usize = 16;

// SAFETY: `malloc`, `calloc`, `posix_memalign`, `realloc` and `free` keep the contract of `GlobalAlloc`, which hands back to
// `dealloc` and `realloc` only what came from here.
unsafe impl GlobalAlloc for Libc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: any size may be asked for.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        let mut memory = core::ptr::null_mut();
        // SAFETY: the alignment is a power of two and larger than a pointer's.
        match unsafe { libc::posix_memalign(&mut memory, layout.align(), layout.size()) } {
            0 => memory.cast(),
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: any size may be asked for.
            return unsafe { libc::calloc(1, layout.size()) }.cast();
        }
        // SAFETY: the caller's layout is passed on; the memory is as long as it says.
        unsafe {
            let memory = self.alloc(layout);
            if !memory.is_null() {
                memory.write_bytes(0, layout.size());
            }
            memory
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: it came from one of the above.
        unsafe { libc::free(memory.cast()) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: it came from `malloc` or `calloc`.
            return unsafe { libc::realloc(memory.cast(), size) }.cast();
        }
        // SAFETY: the caller vouches for size and alignment; both blocks are at least as long as the shorter.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                new.copy_from_nonoverlapping(memory, layout.size().min(size));
                self.dealloc(memory, layout);
            }
            new
        }
    }
}

#[cfg(feature = "bare")]
#[global_allocator]
static ALLOCATOR: Libc = Libc;

/// A broken rule of our own: there is nobody to tell but the core file.
#[cfg(feature = "bare")]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `abort` may be called at any time.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_alignments_survive_growth() {
        let layout = Layout::from_size_align(100, 64).unwrap();
        // SAFETY: used as the contract says.
        unsafe {
            let memory = Libc.alloc_zeroed(layout);
            assert_eq!(memory.align_offset(64), 0);
            memory.write(7);
            let grown = Libc.realloc(memory, layout, 10_000);
            assert_eq!(grown.align_offset(64), 0);
            assert_eq!(grown.read(), 7);
            Libc.dealloc(grown, Layout::from_size_align(10_000, 64).unwrap());
        }
    }
}
