//! Tests of direct modex: when the library requests data, and when it uses its cache.

use super::agent::{self, Agent, begin, client, headers};
use wireup_wire::ids::Rank;
use wireup_wire::pmix::{Answer, Ask, FromServer, Status, ToServer, Wanted};

#[test]
fn uncollected_data_is_requested_from_its_owner() {
    let ((mut here, env_here), (mut there, env_there)) = (started!(begin("direct")), started!(agent::second("direct")));
    let asking = client(&env_here[0], &["get-2", "get-3"]);
    let owner = client(&env_there[0], &["put", "pause", "pause"]);
    let silent = client(&env_there[1], &[]);
    let mut asked = Vec::new();
    while asked.len() < 2 {
        let FromServer::Ask { id, ask: Ask::Modex(wanted) } = here.next_but_comings() else { panic!("no request") };
        let rank = wanted.rank;
        asked.push(rank);
        // The owner's node answers once the rank has committed, or has left without committing.
        there.send(&ToServer::ModexWanted { request: id, wanted });
        let FromServer::Modex { request, status, blob } = there.next_but_comings() else { panic!("no answer") };
        assert_eq!(request, id);
        let answer = if status == Status::Ok { Answer::Modex { blob } } else { Answer::Status(status) };
        assert_eq!(status == Status::Ok, rank == Rank(2), "{status:?}");
        here.answer(id, answer);
    }
    assert_eq!(asked, [Rank(2), Rank(3)]);
    let said = agent::said(asking);
    assert!(said.contains("get-2 string value of 2\nget-3 NOT"), "{said}");
    agent::said(owner);
    agent::said(silent);
    // For a rank that has committed and left, the answer is its data; for a rank of another node, an error.
    there.send(&ToServer::Gone { rank: Rank(2) });
    there.send(&ToServer::ModexWanted { request: 70, wanted: Wanted::data_of(Rank(2)) });
    let FromServer::Modex { request: 70, status: Status::Ok, .. } = there.next_but_comings() else {
        panic!("no answer")
    };
    there.send(&ToServer::ModexWanted { request: 71, wanted: Wanted::data_of(Rank(0)) });
    let FromServer::Modex { request: 71, status: Status::BadParam, .. } = there.next_but_comings() else {
        panic!("no answer")
    };
    here.end();
    there.end();
}

/// Two nodes, with the test as both agents: ranks 0 and 1 request data, rank 2 has it.
struct Pair {
    here: Agent,
    there: Agent,
}

impl Pair {
    /// Passes requests on until all ranks of the first node have entered the next fence; returns the number of requests
    /// for data of rank 2.
    fn until_fence(&mut self) -> usize {
        let (mut asked, mut entered) = (0, None);
        let fence = loop {
            match self.here.next_but_comings() {
                FromServer::Ask { id, ask: Ask::Modex(wanted) } => {
                    assert_eq!(wanted.rank, Rank(2));
                    asked += 1;
                    self.there.send(&ToServer::ModexWanted { request: id, wanted });
                    let answer = self.committed(&mut entered);
                    self.here.answer(id, answer);
                }
                FromServer::Ask { id, ask: Ask::Fence { .. } } => break id,
                other => panic!("{other:?}"),
            }
        };
        let entered = entered.unwrap_or_else(|| self.there.fence(false).0);
        self.here.answer(fence, Answer::fenced(&[]));
        self.there.answer(entered, Answer::fenced(&[]));
        asked
    }

    /// Waits for the data committed by rank 2. Ranks of its node may enter the fence meanwhile.
    fn committed(&mut self, entered: &mut Option<u64>) -> Answer {
        loop {
            match self.there.next_but_comings() {
                FromServer::Modex { status: Status::Ok, blob, .. } => return Answer::Modex { blob },
                FromServer::Modex { status, .. } => return Answer::Status(status),
                FromServer::Ask { id, ask: Ask::Fence { .. } } => *entered = Some(id),
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Two simultaneous requests for the same value cause one request to the owner, and its answer serves all ranks of the
/// node. Data committed later is requested when it is missing, or when a rank asks for a refresh
/// (`PMIX_GET_REFRESH_CACHE`, which 5.0 ignores). So an agent that answered instead of the owner would be wrong.
#[test]
fn the_library_caches_remote_data_for_its_node() {
    need_headers!();
    const F: &str = "fence-bare";
    let first = ["get-2-zero", F, "get-2-one", "get-2-one", "get-2-other", F, F, "get-2-late", F, F];
    let then = ["get-2-never", F, F, "get-2-one", "new-2-one", F];
    let second = ["get-2-zero", F, F, "get-2-one", "get-2-other", F, F, "get-2-late", "get-2-one", F, F, F, F];
    let owner = ["pause", "put-zero", "put-one", "put-other", F, F, "put-late", F, F, F, F, "replace-one", F, F];
    let mut pair = Pair { here: Agent::start(begin("cache")), there: Agent::start(agent::second("cache")) };
    let (env_here, env_there) = (pair.here.ready(), pair.there.ready());
    let clients = [client(&env_here[0], &[&first[..], &then].concat()), client(&env_here[1], &second)];
    let others = [client(&env_there[0], &owner), client(&env_there[1], &[F; 8])];
    let asked: Vec<usize> = (0..8).map(|_| pair.until_fence()).collect();
    let [first, second] = clients.map(agent::said);
    others.into_iter().for_each(|other| drop(agent::said(other)));
    let told = |said: &str| -> Vec<String> {
        said.lines().filter(|line| !line.starts_with("fence")).map(str::to_owned).collect()
    };
    let value = |key: &str| format!("get-2-{key} string value of 2");
    assert_eq!(told(&second), ["zero", "one", "other", "late", "one"].map(value));
    let known: Vec<String> = ["zero", "one", "one", "other", "late"].map(value).into();
    let [never, again] = ["get-2-never TIMEOUT".to_owned(), value("one")];
    assert_eq!(told(&first)[..7], [known, vec![never, again]].concat());
    // The first request is answered when its key is there. The answer may already include what the owner commits right
    // after that.
    assert!(asked[1] <= 1, "{asked:?}");
    assert_eq!(asked[2..7], [0, 1, 0, 1, 0], "one request per node, and another for data that it lacks");
    assert_eq!(asked[0], 1);
    let anew = if asked[7] == 1 { "new-2-one string value anew of 2" } else { "new-2-one string value of 2" };
    assert_eq!(told(&first)[7..], [anew]);
    pair.here.end();
    pair.there.end();
}
