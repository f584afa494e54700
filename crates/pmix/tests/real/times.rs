//! Measurements: `cargo test -p wireup-pmix --test real -- --ignored --nocapture`.

use super::agent::{self, Agent, begin, client, headers};
use bytes::Bytes;
use std::time::{Duration, Instant};
use wireup_wire::ids::NodeId;
use wireup_wire::job::Block;
use wireup_wire::pmix::{Answer, Ask, FromServer, ToServer};

/// A measurement, not a test: from the start of the process to `Ready`, for jobs of 256 ranks.
#[test]
#[ignore = "prints times"]
fn measures_the_time_until_a_server_is_ready() {
    need_headers!();
    for ppn in [1, 16, 64, 256] {
        let mut times = Vec::new();
        for round in 0..7 {
            let nodes = 256 / ppn;
            let mut begin = begin(&format!("ready{ppn}-{round}"));
            begin.nodes = (0..nodes).map(|node| format!("n{node}")).collect();
            begin.blocks = vec![Block { first_node: 0, nodes, ppn }];
            begin.apps[0].ranks = 256;
            begin.cpus = vec![None; ppn as usize];
            let started = Instant::now();
            let mut agent = Agent::start(begin);
            agent.ready();
            let ready = started.elapsed();
            agent.end();
            times.push((ready, started.elapsed() - ready));
        }
        times.sort();
        println!("{ppn} ranks here: ready after {:.1?}, end {:.1?}", times[3].0, times[3].1);
    }
}

/// A measurement, not a test: a fence with 32 bytes of each rank, and the value of every rank after it, on 16 nodes of
/// 16 ranks. Set `PMIX_MCA_gds` to compare stores.
#[test]
#[ignore = "prints times"]
fn measures_the_time_of_a_fence() {
    need_headers!();
    const NODES: u32 = 16;
    const PPN: u32 = 16;
    let mut agents: Vec<Agent> = (0..NODES)
        .map(|node| {
            let mut begin = begin("fence");
            begin.nodes = (0..NODES).map(|node| format!("n{node}")).collect();
            begin.node = NodeId(node);
            begin.blocks = vec![Block { first_node: 0, nodes: NODES, ppn: PPN }];
            begin.apps[0].ranks = NODES * PPN;
            begin.cpus = vec![None; PPN as usize];
            begin.dir = format!("{}-{node}", begin.dir);
            Agent::start(begin)
        })
        .collect();
    let clients: Vec<_> =
        agents.iter_mut().flat_map(|agent| agent.ready()).map(|env| client(&env, &["timed"])).collect();
    let (mut bytes, mut exchange) = (0, Duration::ZERO);
    let ran = |agents: &[Agent]| agents.iter().map(Agent::ran).sum::<Duration>();
    let mut before = Duration::ZERO;
    for round in 0..3 {
        let asked: Vec<_> = agents.iter_mut().map(|agent| agent.fence(round == 2)).collect();
        let started = Instant::now();
        before = ran(&agents);
        let data: Bytes = asked.iter().flat_map(|(_, data)| data.to_vec()).collect();
        for (agent, (id, _)) in agents.iter().zip(&asked) {
            agent.answer(*id, Answer::fenced(&data));
        }
        (bytes, exchange) = (data.len(), started.elapsed());
    }
    // One more exchange shows that the first has completed in every server.
    let entered: Vec<_> = agents.iter_mut().map(|agent| agent.fence(false)).collect();
    let fence_cpu = ran(&agents) - before;
    for (agent, (id, _)) in agents.iter().zip(&entered) {
        agent.answer(*id, Answer::fenced(&[]));
    }
    let memory: u64 = agents.iter().map(Agent::memory).sum();
    let (mut fence, mut get) = (0f64, 0f64);
    for client in clients {
        let said = agent::said(client);
        let mut times = said.lines().next().unwrap().rsplit(' ').map(|time| time.parse::<f64>().unwrap());
        get = get.max(times.next().unwrap());
        fence = fence.max(times.next().unwrap());
    }
    println!(
        "fence {fence:.3} s, {bytes} bytes, {exchange:.1?} in the test, servers {fence_cpu:.1?}; get of all {get:.3} \
         s; servers {memory} KiB"
    );
    agents.into_iter().for_each(Agent::end);
}

/// A measurement, not a test: the first get of a value from another node, without the time of agents and network.
#[test]
#[ignore = "prints times"]
fn measures_the_time_of_a_direct_get() {
    need_headers!();
    for round in 0..5 {
        let name = format!("get{round}");
        let (mut here, mut there) = (Agent::start(begin(&name)), Agent::start(agent::second(&name)));
        let (env_here, env_there) = (here.ready(), there.ready());
        let owner = client(&env_there[0], &["put", "pause"]);
        let asking = client(&env_here[0], &["pause", "timed-get-2"]);
        let FromServer::Ask { id, ask: Ask::Modex(wanted) } = here.next_but_comings() else { panic!("no request") };
        let asked = Instant::now();
        there.send(&ToServer::ModexWanted { request: id, wanted });
        let FromServer::Modex { blob, .. } = there.next_but_comings() else { panic!("no answer") };
        let answered = asked.elapsed();
        here.answer(id, Answer::Modex { blob });
        println!("{}, of which the owner's server {answered:.1?}", agent::said(asking).trim());
        drop(owner);
        here.end();
        there.end();
    }
}
