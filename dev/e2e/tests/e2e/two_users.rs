//! What another user of the same machine can reach: one file for each kind of endpoint of the inventory in
//! `docs/explanation/threat-model.md`. Each test lets another user forge, squat, race, hold connections idle or replay.
//!
//! Tests of the other endpoints are at the end of the files of these endpoints, except: `e2e` has `links` (an agent's
//! port), `ssh` and `program_transfer` (starts by ssh), `sessions::refusals` and `sessions::detached`, `pmi` and
//! `bad_input`, `containment`, `relays`, `tap_pmix`, `torch` (the store). `node` has `links::tests` (TCP, UCX),
//! `munge`, `step::lines`, `keeper`, `pmix::directory`, `fellows`. `os` has `own_directory`, `output_file`, `reserved`,
//! `secret_page`, `shm`, `socket`, `tcp_peer`, `process::confined`. `bootstrap` has `network` and `agreement`
//! (libwireup), `capi` has `mapping` and `secondary_client`, `pmix` has `server::guard` and `tests/real`, `tap` has
//! `port` and `gather`, `stage` has `gather::receiving`.

mod joining;
mod output_files;
mod pmix;
mod privileges;
mod slurm;
mod squatting;
