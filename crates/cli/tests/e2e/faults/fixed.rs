//! Faults with a moment of their own: full disks, and remote shells that nobody needs any more.
