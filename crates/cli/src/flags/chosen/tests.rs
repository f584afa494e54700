use super::*;
use crate::flags::parsed::parsed_words;
use crate::flags::resolved::{Resolved, resolve};
use wireup_wire::ids::NodeId;
use wireup_wire::peer::RemoteShell;

const SLURM: [(&str, &str); 4] = [
    ("SLURM_JOB_ID", "12"),
    ("SLURM_JOB_NODELIST", "cn[17-19]"),
    ("SLURM_TASKS_PER_NODE", "4(x2),2"),
    ("SLURM_JOB_CPUS_PER_NODE", "16(x3)"),
];

fn try_high(line: &str, env: &[(&str, &str)]) -> Result<Resolved, String> {
    let parsed = parsed_words(line.split_whitespace());
    let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    resolve(parsed, Surroundings { env, ..Surroundings::example() })
}

/// The number of ranks on each node, by name; and the first word of the remote shell.
fn placed(line: &str, env: &[(&str, &str)]) -> (String, String) {
    let resolved = try_high(line, env).unwrap_or_else(|error| panic!("{line}: {error}"));
    let node = |(index, node): (usize, &wireup_wire::job::NodeSpec)| {
        format!("{}:{}", node.name, resolved.mapping.local_size(NodeId(index as u32)))
    };
    let nodes = resolved.job.nodes.iter().enumerate().map(node).collect::<Vec<_>>().join(" ");
    let shell = resolved.session.remote_shell.words().first().map_or("none", String::as_str).to_owned();
    (nodes, shell)
}

fn on(nodes: &str, shell: &str) -> (String, String) {
    (nodes.into(), shell.into())
}

#[test]
fn an_allocation_sets_hosts_and_rank_counts() {
    assert_eq!(placed("./a", &SLURM), on("cn17:4 cn18:4 cn19:2", "srun"));
    assert_eq!(placed("-n 6 ./a", &SLURM), on("cn17:4 cn18:2 cn19:0", "srun"));
    assert_eq!(placed("-n 2 --ppn 1 ./a", &SLURM), on("cn17:1 cn18:1 cn19:0", "srun"));
}

#[test]
fn more_ranks_than_requested_tasks_fit_up_to_the_cpus() {
    assert_eq!(placed("-n 20 ./a", &SLURM), on("cn17:16 cn18:4 cn19:0", "srun"));
    assert_eq!(placed("--ppn 8 ./a", &SLURM), on("cn17:8 cn18:8 cn19:8", "srun"));
    assert_eq!(placed("--map-by ppr:3:node ./a", &SLURM), on("cn17:3 cn18:3 cn19:3", "srun"));
    assert_eq!(placed("--slots 5 ./a", &SLURM), on("cn17:5 cn18:5 cn19:5", "srun"));
    let over = try_high("-n 49 ./a", &SLURM).expect_err("48 cpus");
    assert!(over.contains("49 ranks do not fit into the 48 slots that Slurm job 12 has on 3 node(s)"), "{over}");
    assert!(try_high("-n 49 --oversubscribe ./a", &SLURM).is_ok());
}

#[test]
fn hosts_named_inside_the_allocation_are_started_by_srun() {
    assert_eq!(placed("--hosts cn[18-19] ./a", &SLURM), on("cn18:4 cn19:2", "srun"));
    assert_eq!(placed("--hosts cn18:1,cn19 ./a", &SLURM), on("cn18:1 cn19:1", "srun"));
    assert_eq!(placed("--hosts cn18,other ./a", &SLURM), on("cn18:1 other:1", "ssh"));
    assert_eq!(placed("--hosts cn18 --remote-shell rsh ./a", &SLURM), on("cn18:4", "rsh"));
}

#[test]
fn flags_override_wireup_hosts_which_overrides_the_allocation() {
    let env: Vec<_> = SLURM.into_iter().chain([("WIREUP_HOSTS", "a:2,b")]).collect();
    assert_eq!(placed("--hosts c ./a", &env), on("c:1", "ssh"));
    assert_eq!(placed("./a", &env), on("a:2 b:1", "ssh"));
    assert_eq!(placed("--virtual-nodes 2 -n 2 ./a", &env), on("node0:1 node1:1", "none"));
    assert_eq!(placed("-n 2 ./a", &[("WIREUP_HOSTS", "")]), on("cn17:2", "none"));
    let origin = |line: &str, env: &[(&str, &str)]| try_high(line, env).expect(line).hosts_from;
    assert_eq!(origin("./a", &SLURM), "Slurm job 12 (SLURM_JOB_NODELIST)");
    assert_eq!(origin("./a", &env), "WIREUP_HOSTS");
    assert_eq!(origin("--hosts cn18 ./a", &SLURM), "--hosts, of Slurm job 12");
    assert_eq!(origin("-n 1 ./a", &[]), "");
}

#[test]
fn broken_host_variables_are_errors_unless_hosts_are_named() {
    let broken: Vec<_> = SLURM
        .into_iter()
        .map(|(name, value)| if name.contains("TASKS") { (name, "4(x9)") } else { (name, value) })
        .collect();
    let said = try_high("./a", &broken).expect_err("9 nodes");
    let words = "SLURM_TASKS_PER_NODE=4(x9): it has entries for 9 nodes, but the job has 3 nodes;";
    assert!(said.starts_with(words), "{said}");
    assert!(try_high("--hosts n1 ./a", &broken).is_ok() && try_high("--virtual-nodes 2 ./a", &broken).is_ok());
    let said = try_high("./a", &[("WIREUP_HOSTS", "n[1-")]).expect_err("brackets");
    assert!(said.starts_with("WIREUP_HOSTS: n[1-: brackets do not match"), "{said}");
    let many: Vec<_> = SLURM.into_iter().chain([("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "10")]).collect();
    assert!(try_high("./a", &many).expect_err("ten").starts_with("this is one of 10 tasks of a Slurm step"));
    assert!(try_high("--hosts cn17 ./a", &many).is_ok());
}

#[test]
fn srun_needs_an_allocation() {
    let said = try_high("--hosts n1 --remote-shell srun ./a", &[]).expect_err("no allocation");
    assert!(said.contains("salloc or sbatch"), "{said}");
    let parsed = parsed_words(["--remote-shell", "/opt/srun --reservation=x", "./a"]);
    let env = SLURM.map(|(name, value)| (name.into(), value.into())).to_vec();
    let resolved = resolve(parsed, Surroundings { env, ..Surroundings::example() }).expect("valid");
    let RemoteShell::Srun(words) = resolved.session.remote_shell else { panic!("not started by srun") };
    assert_eq!((words[0].as_str(), words.last().map(String::as_str)), ("/opt/srun", Some("--reservation=x")));
    assert!(words.contains(&"--overlap".to_owned()));
}

#[test]
fn slurmd_nodename_names_this_machine_among_the_hosts() {
    let env: Vec<_> = SLURM.into_iter().chain([("SLURMD_NODENAME", "cn19")]).collect();
    let resolved = try_high("./a", &env).expect("valid");
    let hosts: Vec<&str> = resolved.session.agents.iter().map(|agent| agent.host.as_str()).collect();
    assert_eq!(hosts, ["cn19", "cn17", "cn18"]);
}
