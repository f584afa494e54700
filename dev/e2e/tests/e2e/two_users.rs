//! What another user of the same machine can reach: one file for each kind of endpoint of the inventory in
//! `docs/explanation/threat-model.md`. Each test lets a stranger forge, squat, race, hold idle or replay.

mod joining;
mod output_files;
mod pmix;
mod privileges;
mod slurm;
mod squatting;
