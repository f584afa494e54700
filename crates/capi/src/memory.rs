//! Memory from the C library; a panic ends the process.

use core::alloc::{GlobalAlloc, Layout};

struct Libc;

/// The alignment of `malloc` on every platform with 64-bit pointers.
const MALLOC_ALIGN: usize = 16;

// SAFETY: `malloc`, `calloc`, `posix_memalign`, `realloc` and `free` fulfil the contract of `GlobalAlloc`, whose
// callers pass to `dealloc` and `realloc` only memory that was allocated here.
unsafe impl GlobalAlloc for Libc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: `malloc` accepts any size.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        let mut memory = core::ptr::null_mut();
        // SAFETY: the alignment is a power of two and larger than that of a pointer.
        match unsafe { libc::posix_memalign(&mut memory, layout.align(), layout.size()) } {
            0 => memory.cast(),
            _ => core::ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: `calloc` accepts any size.
            return unsafe { libc::calloc(1, layout.size()) }.cast();
        }
        // SAFETY: the caller's layout is passed on; the memory has `layout.size()` bytes.
        unsafe {
            let memory = self.alloc(layout);
            if !memory.is_null() {
                memory.write_bytes(0, layout.size());
            }
            memory
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, _: Layout) {
        // SAFETY: the memory came from one of the functions above.
        unsafe { libc::free(memory.cast()) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: the memory came from `malloc` or `calloc`.
            return unsafe { libc::realloc(memory.cast(), size) }.cast();
        }
        // SAFETY: the caller guarantees size and alignment; both blocks have at least the smaller of the two sizes.
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

/// A panic is a bug of our own. It cannot be reported other than by a core file.
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
    fn large_alignments_survive_realloc() {
        let layout = Layout::from_size_align(100, 64).unwrap();
        // SAFETY: used according to the contract.
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
