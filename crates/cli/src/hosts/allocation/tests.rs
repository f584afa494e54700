use super::*;
use std::fs;

/// A folder for the files of batch systems.
struct Spool(tempfile::TempDir);

impl Spool {
    fn new() -> Spool {
        Spool(tempfile::tempdir().unwrap())
    }

    fn file(&self, text: &str) -> String {
        let path = self.0.path().join("file");
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn env(text: &str) -> Vec<(OsString, OsString)> {
    let variable = |line: &str| line.split_once('=').map(|(name, value)| (name.into(), value.into()));
    text.lines().filter_map(|line| variable(line.trim())).collect()
}

fn detected(text: &str) -> Allocation {
    detect(Env(&env(text))).unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|| panic!("none in {text}"))
}

fn refused(text: &str) -> String {
    detect(Env(&env(text))).expect_err(text).to_string()
}

fn nodes(allocation: &Allocation) -> String {
    let node = |node: &Node| format!("{}:{}/{}", node.name, node.tasks, node.cpus);
    allocation.nodes.iter().map(node).collect::<Vec<_>>().join(" ")
}

/// The environment that `salloc -N3 -n5` sets.
const SALLOC: &str = "SLURM_JOB_ID=12\nSLURM_JOBID=12\nSLURM_JOB_NODELIST=n[1-2],gpu05\nSLURM_NNODES=3\n\
    SLURM_NTASKS=5\nSLURM_JOB_CPUS_PER_NODE=16(x2),8\nSLURM_TASKS_PER_NODE=2(x2),1";

#[test]
fn slurms_variables_outside_a_step_give_the_allocation() {
    let allocation = detected(SALLOC);
    assert_eq!((allocation.scheduler, allocation.job.as_str()), ("Slurm", "12"));
    assert_eq!(nodes(&allocation), "n1:2/16 n2:2/16 gpu05:1/8");
    assert_eq!((&allocation.own_name, &allocation.refused), (&None, &None));
    let batch = detected(&format!("{SALLOC}\nSLURMD_NODENAME=n1\nSLURM_PROCID=0\nSLURM_NODEID=0"));
    assert_eq!(batch.own_name.as_deref(), Some("n1"));
    let wide =
        detected("SLURM_JOB_ID=1\nSLURM_JOB_NODELIST=n[08-10]\nSLURM_JOB_CPUS_PER_NODE=16(x3)\nSLURM_CPUS_PER_TASK=4");
    assert_eq!(nodes(&wide), "n08:4/16 n09:4/16 n10:4/16");
    assert_eq!(nodes(&detected("SLURM_JOB_ID=1\nSLURM_JOB_NODELIST=n7")), "n7:1/1");
}

#[test]
fn a_step_of_one_task_uses_the_whole_allocation() {
    let step =
        format!("{SALLOC}\nSLURM_TASKS_PER_NODE=1\nSLURM_STEP_ID=0\nSLURM_STEP_NUM_NODES=1\nSLURM_STEP_NUM_TASKS=1");
    let step = step.replacen("SLURM_TASKS_PER_NODE=2(x2),1\n", "", 1);
    assert_eq!(nodes(&detected(&step)), "n1:16/16 n2:16/16 gpu05:8/8");
    // The step has one task on each node.
    let step = step.replace("PER_NODE=1\n", "PER_NODE=1(x3)\n").replace("NUM_NODES=1", "NUM_NODES=3");
    assert_eq!(nodes(&detected(&step)), "n1:16/16 n2:16/16 gpu05:8/8");
}

#[test]
fn one_of_many_tasks_is_refused_but_a_terminal_step_is_not() {
    let step = format!("{SALLOC}\nSLURM_STEP_ID=0\nSLURM_STEP_NUM_NODES=3\nSLURM_STEP_NUM_TASKS=5");
    let words = detected(&step).refused.expect("it is refused").to_string();
    assert!(words.starts_with("this is one of 5 tasks of a Slurm step") && words.contains("srun -n 1"), "{words}");
    let terminal = detected(&format!("{step}\nSLURM_PTY_PORT=4000"));
    assert_eq!((terminal.refused.clone(), nodes(&terminal)), (None, "n1:2/16 n2:2/16 gpu05:1/8".into()));
}

#[test]
fn invalid_slurm_values_name_their_variable() {
    let with = |name: &str, value: &str| {
        let other = SALLOC.lines().filter(|line| !line.starts_with(&format!("{name}=")));
        refused(&format!("{}\n{name}={value}", other.collect::<Vec<_>>().join("\n")))
    };
    for (name, value, problem) in [
        ("SLURM_JOB_NODELIST", "n[1-", "brackets do not match"),
        ("SLURM_JOB_NODELIST", "n[1-999999999]", "more than 1000000 hosts"),
        ("SLURM_TASKS_PER_NODE", "4(x2),x", "x is not a number such as 4 or 4(x2)"),
        ("SLURM_TASKS_PER_NODE", "4(x2)", "it has entries for 2 nodes, but the job has 3 nodes"),
        ("SLURM_JOB_CPUS_PER_NODE", "16(x4000000000)", "it has entries for 4000000000 nodes"),
        ("SLURM_CPUS_PER_TASK", "many", "not a whole number"),
    ] {
        let said = with(name, value);
        assert!(said.starts_with(&format!("{name}={value}: ")) && said.contains(problem), "{said}");
        assert!(said.ends_with("unset it; or name the hosts with --hosts"), "{said}");
    }
    let long = with("SLURM_JOB_NODELIST", &"[".repeat(1000));
    assert!(long.len() < 1400, "{long}");
}

#[test]
fn the_rank_count_decides_between_tasks_and_cpus_as_slots() {
    let allocation = detected(SALLOC);
    let slots = |ranks| allocation.entries(ranks).iter().map(|entry| entry.slots.unwrap()).collect::<Vec<_>>();
    assert_eq!(slots(None), [2, 2, 1]);
    assert_eq!(slots(Some(5)), [2, 2, 1]);
    assert_eq!(slots(Some(6)), [16, 16, 8]);
}

#[test]
fn a_pbs_node_file_gives_one_slot_per_line() {
    let spool = Spool::new();
    let file = spool.file("cn17.site.org\ncn17.site.org\ncn18.site.org\ncn18.site.org\ncn3.site.org\n");
    let allocation = detected(&format!("PBS_JOBID=7.server\nPBS_NODEFILE={file}"));
    assert_eq!(nodes(&allocation), "cn17.site.org:2/2 cn18.site.org:2/2 cn3.site.org:1/1");
    assert_eq!(allocation.scheduler, "PBS");
    let gone = refused("PBS_JOBID=7\nPBS_NODEFILE=/no/such/file");
    assert!(gone.starts_with("cannot use the file that PBS_NODEFILE names: host file /no/such/file: "), "{gone}");
    let broken = spool.file("cn17\n&\n");
    assert!(refused(&format!("PBS_JOBID=7\nPBS_NODEFILE={broken}")).contains("line 2"));
    let none = refused("PBS_JOBID=7");
    assert!(none.starts_with("PBS_JOBID is set but PBS_NODEFILE (the host list) is not"), "{none}");
}

#[test]
fn lsf_hosts_are_read_from_any_of_three_variables() {
    let spool = Spool::new();
    let file = spool.file("hostA\nhostA\nhostA\nhostB\n");
    let pairs = "LSB_MCPU_HOSTS=hostB 1 hostA 2 ";
    let all = format!("LSB_JOBID=9\nLSB_HOSTS=hostC hostC hostD\n{pairs}\nLSB_DJOB_HOSTFILE={file}");
    assert_eq!(nodes(&detected(&all)), "hostA:3/3 hostB:1/1");
    let no_file = all.replace(&file, "/no/such/file");
    assert_eq!(
        (nodes(&detected(&no_file)).as_str(), detected(&no_file).told_by),
        ("hostB:1/1 hostA:2/2", "LSB_MCPU_HOSTS")
    );
    assert_eq!(nodes(&detected("LSB_JOBID=9\nLSB_HOSTS=hostC hostC hostD")), "hostC:2/2 hostD:1/1");
    assert!(refused("LSB_JOBID=9").starts_with("LSB_JOBID is set but LSB_DJOB_HOSTFILE"));
    for pairs in ["hostA 2 hostB", "hostA two", "host[1-2] 2", "hostA 0"] {
        let said = refused(&format!("LSB_JOBID=9\nLSB_MCPU_HOSTS={pairs}"));
        assert!(said.starts_with(&format!("LSB_MCPU_HOSTS={pairs}: ")), "{said}");
    }
}

#[test]
fn a_grid_engine_host_file_gives_slots_per_host() {
    let spool = Spool::new();
    let file = spool.file("node01.site 4 all.q@node01.site UNDEFINED\nnode02.site 2 all.q@node02.site <NULL>\n\n");
    let allocation = detected(&format!("JOB_ID=5\nPE_HOSTFILE={file}"));
    assert_eq!(nodes(&allocation), "node01.site:4/4 node02.site:2/2");
    let broken = spool.file("node01 four all.q\n");
    assert!(refused(&format!("JOB_ID=5\nPE_HOSTFILE={broken}")).contains("\"node01 four all.q\" does not begin with"));
}

#[test]
fn a_flux_resource_set_gives_cores_per_host() {
    let set = r#"{"version": 1, "execution": {"R_lite": [
        {"rank": "0,2", "children": {"core": "0-3", "gpu": "0-1"}}, {"rank": "1", "children": {"core": "1,5"}}],
        "starttime": 0.0, "expiration": 0.0, "nodelist": ["fluke[0-1]", "big7"]}}"#;
    let names = |nodes: Vec<Node>| nodes.iter().map(|node| format!("{}:{}", node.name, node.tasks)).collect::<Vec<_>>();
    assert_eq!(flux::read(set.as_bytes()).map(names), Ok(vec!["fluke0:4".into(), "fluke1:2".into(), "big7:4".into()]));
    for (broken, problem) in [
        ("", "its output is not a resource set"),
        ("{}", "no nodelist"),
        (r#"{"execution": {"nodelist": ["n[0-1]"], "R_lite": [{"rank": "0"}]}}"#, "1 ranks on 2 nodes"),
        (r#"{"execution": {"nodelist": ["n0"], "R_lite": [{"rank": "0-4000000000"}]}}"#, "is not a set of ids"),
        (r#"{"execution": {"nodelist": ["n["], "R_lite": []}}"#, "brackets"),
    ] {
        let said = flux::read(broken.as_bytes()).expect_err(broken);
        assert!(said.contains(problem), "{said}");
    }
    assert_eq!(detect(Env(&env("FLUX_URI=local:///run/flux/local"))), Ok(None), "a system's own instance is no job");
}

#[test]
fn systems_that_start_a_command_on_each_node_name_their_nodes() {
    for (variables, expected) in [
        (
            "SKYPILOT_NODE_RANK=0\nSKYPILOT_NUM_NODES=2\nSKYPILOT_NODE_IPS=10.0.0.1 10.0.0.2\n\
             SKYPILOT_NUM_GPUS_PER_NODE=8\nSKYPILOT_TASK_ID=sky-1",
            "SkyPilot sky-1: 10.0.0.1:8/0 10.0.0.2:8/0",
        ),
        (
            "DSTACK_NODE_RANK=0\nDSTACK_NODES_NUM=2\nDSTACK_NODES_IPS=10.0.0.1 10.0.0.2\nDSTACK_GPUS_PER_NODE=0\n\
             DSTACK_RUN_NAME=run",
            "dstack run: 10.0.0.1:1/0 10.0.0.2:1/0",
        ),
        (
            "LWS_WORKER_INDEX=0\nLWS_GROUP_SIZE=3\nLWS_LEADER_ADDRESS=x-1.x.ns",
            "LeaderWorkerSet x-1.x.ns: x-1.x.ns:1/0 x-1-1.x.ns:1/0 x-1-2.x.ns:1/0",
        ),
        (
            "PET_NODE_RANK=0\nPET_NNODES=2\nPET_MASTER_ADDR=train-node-0-0.train\nPET_NPROC_PER_NODE=4",
            "Kubeflow train-node-0-0.train: train-node-0-0.train:4/0 train-node-0-1.train:4/0",
        ),
        (
            "PET_NODE_RANK=0\nPET_NNODES=3\nPET_MASTER_ADDR=job-master-0\nPET_NPROC_PER_NODE=auto",
            "Kubeflow job-master-0: job-master-0:1/0 job-worker-0:1/0 job-worker-1:1/0",
        ),
        (
            "PET_NODE_RANK=0\nPET_NNODES=2:2\nPET_MASTER_ADDR=job-master-0",
            "Kubeflow job-master-0: job-master-0:1/0 job-worker-0:1/0",
        ),
        (
            "JOB_COMPLETION_INDEX=0\nNNODES=2\nMASTER_ADDR=set-workers-0-0.set",
            "indexed Kubernetes set-workers-0-0.set: set-workers-0-0.set:1/0 set-workers-0-1.set:1/0",
        ),
    ] {
        let allocation = detected(variables);
        assert_eq!(format!("{} {}: {}", allocation.scheduler, allocation.job, nodes(&allocation)), expected);
        assert!(allocation.refused.is_none() && is_likely(Env(&env(variables))), "{variables}");
        let (index, _) = variables.split_once("=0").unwrap();
        let other = detected(&variables.replacen("=0", "=1", 1)).refused.expect("it is refused on node 1");
        assert!(
            other.starts_with("this is node 1 of")
                && other.contains(&format!(" of the {} job, ", allocation.scheduler)),
            "{other}"
        );
        assert!(other.contains(&format!("if [ \"${index}\" = 0 ]")), "{other}");
    }
}

#[test]
fn any_number_of_ranks_fits_where_only_the_usual_number_is_known() {
    let allocation = detected("LWS_WORKER_INDEX=0\nLWS_GROUP_SIZE=2\nLWS_LEADER_ADDRESS=x-0.x");
    let slots = |ranks| allocation.entries(ranks).iter().map(|entry| entry.slots).collect::<Vec<_>>();
    assert_eq!(slots(None), [Some(1), Some(1)]);
    assert_eq!(slots(Some(64)), [None, None]);
}

#[test]
fn a_single_node_or_a_rank_is_no_allocation() {
    for variables in [
        // Alibaba PAI: RANK counts nodes.
        "RANK=1\nWORLD_SIZE=4\nMASTER_ADDR=dlc7-master-0\nMASTER_PORT=23456",
        "SKYPILOT_NODE_RANK=0\nSKYPILOT_NUM_NODES=1\nSKYPILOT_NODE_IPS=10.0.0.1",
        "JOB_COMPLETION_INDEX=3",
        "PET_NODE_RANK=0\nPET_NNODES=1:1\nPET_RDZV_ENDPOINT=job:29400",
        "PET_NNODES=1\nPET_NPROC_PER_NODE=8",
        "NNODES=3",
    ] {
        assert_eq!(detect(Env(&env(variables))), Ok(None), "{variables}");
    }
}

#[test]
fn wrong_lists_of_nodes_are_refused() {
    for (variables, problem) in [
        ("DSTACK_NODE_RANK=0\nDSTACK_NODES_NUM=3\nDSTACK_NODES_IPS=10.0.0.1 10.0.0.2", "it has 2 hosts, but"),
        ("DSTACK_NODE_RANK=0\nDSTACK_NODES_NUM=3", "DSTACK_NODES_IPS (the host list) is not"),
        ("PET_NODE_RANK=0\nPET_NNODES=2\nPET_MASTER_ADDR=localhost", "do not follow from this one"),
        // Nodes of an elastic job find each other by a rendezvous of torchrun.
        ("PET_NNODES=1:4\nPET_RDZV_ENDPOINT=job:29400", "PET_NNODES=1:4: the number of nodes is not fixed"),
        ("PET_NNODES=3\nPET_MASTER_ADDR=x-0", "PET_NNODES=3: PET_NODE_RANK is not set, so"),
        ("PET_NNODES=2:2\nPET_RDZV_ENDPOINT=job:29400", "0 on the first) and PET_MASTER_ADDR to"),
        ("PET_NODE_RANK=1\nPET_NNODES=2:4\nPET_MASTER_ADDR=job-master-0", "each node would start a job of its own"),
        ("JOB_COMPLETION_INDEX=1\nNNODES=2:4\nMASTER_ADDR=x-0", "NNODES=2:4: not a whole number"),
        ("PET_NODE_RANK=0\nPET_NNODES=4000000000\nPET_MASTER_ADDR=x-0", "more than"),
        ("LWS_WORKER_INDEX=x\nLWS_GROUP_SIZE=2", "not a whole number"),
    ] {
        let said = refused(variables);
        assert!(said.contains(problem), "{said}");
    }
}

#[test]
fn without_an_allocation_nothing_is_detected() {
    assert_eq!(detect(Env(&env("HOME=/root\nSLURM_JOB_ID=3\nJOB_ID=4"))), Ok(None));
    assert!(is_likely(Env(&env("SLURM_JOB_ID=3"))) && !is_likely(Env(&env("HOME=/root"))));
}
