//! Options that place and bind ranks.

use crate::flags::table as flag;
use crate::front::family::Family;
use crate::front::row::Rule;

pub static MAP_BY: Rule = Rule {
    says: "as `--map-by`; Hydra's `core:2` maps to each second core",
    example: ("mpirun --map-by :oversubscribe --map-by node ./a", "--map-by node:oversubscribe ./a"),
    act: |translation, typed| {
        let text = typed.value().text()?;
        mapping(translation.family, &text).map_or(Ok(()), |word| translation.give(&flag::MAP_BY, typed, word.into()))
    },
};

/// What `--map-by` is given for an option or a variable of other launchers; `None`: nothing.
pub fn mapping(family: Family, text: &str) -> Option<String> {
    match text.to_ascii_lowercase().as_str() {
        "board" | "machine" | "user" | "rr" if family == Family::Hydra => None,
        word => Some(words(word, text)),
    }
}

pub static BIND_TO: Rule = Rule {
    says: "as `--bind-to`; also `rr` (a hardware thread each), `user:LIST`, `map_cpu:LIST`, `cores`, `sockets`, `threads`",
    example: ("mpiexec.hydra -bind-to core:2 ./a", "--bind-to core:2 ./a"),
    act: |translation, typed| {
        let text = typed.value().text()?;
        binding(&text).map_or(Ok(()), |word| translation.give(&flag::BIND_TO, typed, word.into()))
    },
};

/// What `--bind-to` is given for an option or a variable of other launchers; `None`: nothing.
pub fn binding(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let word = match lower.as_str() {
        "rr" | "threads" => "thread",
        "cores" => "core",
        "sockets" => "socket",
        "ldoms" => "numa",
        "no" | "off" => "none",
        "quiet" | "verbose" | "q" | "v" => return None,
        _ => return Some(lower.strip_prefix("map_cpu:").map_or(lower.clone(), |list| format!("user:{list}"))),
    };
    Some(word.to_owned())
}

pub static RANK_BY: Rule = Rule {
    says: "as `--rank-by`; objects of a node number ranks as they are mapped",
    example: ("mpirun --rank-by core ./a", "--rank-by slot ./a"),
    act: |translation, typed| {
        let text = typed.value().text()?.to_ascii_lowercase();
        let word = text.split(':').next().unwrap_or_default();
        let word = match word {
            "slot" | "node" | "fill" => word,
            "span" => "slot",
            object if crate::flags::mapping::is_object(object) => "slot",
            other => other,
        };
        translation.give(&flag::RANK_BY, typed, word.into())
    },
};

pub static PER_SOCKET: Rule = Rule {
    says: "as `--map-by ppr:N:socket`",
    example: ("mpirun --npersocket 2 ./a", "--map-by ppr:2:socket ./a"),
    act: |translation, typed| {
        translation.give(&flag::MAP_BY, typed, format!("ppr:{}:socket", typed.value().at_least_one()?).into())
    },
};

pub static PER_OBJECT: Rule = Rule {
    says: "as `--map-by ppr:N:OBJECT`",
    example: ("mpirun --ppr 2:l3cache ./a", "--map-by ppr:2:l3cache ./a"),
    act: |translation, typed| translation.give(&flag::MAP_BY, typed, format!("ppr:{}", typed.value().text()?).into()),
};

pub static CPUS_PER_RANK: Rule = Rule {
    says: "as `--map-by :pe=N`: ranks are bound to N cores each",
    example: ("mpirun --cpus-per-proc 2 ./a", "--map-by :pe=2 ./a"),
    act: |translation, typed| {
        translation.give(&flag::MAP_BY, typed, format!(":pe={}", typed.value().at_least_one()?).into())
    },
};

pub static GPUS: Rule = Rule {
    says: "as `--gpus-per-rank N`; `AUTO`: ranks see what mpiexec sees",
    example: ("mpiexec.hydra -gpus-per-proc 2 ./a", "--gpus-per-rank 2 ./a"),
    act: |translation, typed| match typed.value().shown().as_ref() {
        "AUTO" | "auto" | "0" => Ok(()),
        _ => translation.give(&flag::GPUS_PER_RANK, typed, typed.pair()),
    },
};

pub static MPI: Rule = Rule {
    says: "`pmi2`, `cray_shasta`: `--pmi simple`; `pmix`: `--pmi pmix`; `none`",
    example: ("mpiexec --mpi=pmix ./a", "--pmi pmix ./a"),
    act: |translation, typed| {
        let kinds = [
            ("pmi2", "simple"),
            ("cray_shasta", "simple"),
            ("pmix", "pmix"),
            ("pmix_v2", "pmix"),
            ("pmix_v3", "pmix"),
            ("pmix_v4", "pmix"),
            ("pmix_v5", "pmix"),
            ("none", "none"),
        ];
        translation.give(&flag::PMI, typed, typed.value().choice(&kinds)?.into())
    },
};

pub static RANK_MAP: Rule = Rule {
    says: "the node of each rank, counted from 0: `0,0,1,1`, or Hydra's `(vector,(0,2,2))`",
    example: ("mpiexec.hydra -rankmap 0,0,1 ./a", "--rank-map 0,0,1 ./a"),
    act: |translation, typed| translation.give(&flag::RANK_MAP, typed, typed.pair()),
};

/// Hydra's number behind an object is a step.
fn words(word: &str, text: &str) -> String {
    match word.split_once(':') {
        Some((object, step))
            if object != "ppr" && !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            format!("{object}:step={step}")
        }
        _ => text.to_owned(),
    }
}
