use super::*;

fn starts(max: u32) -> Starts {
    Starts::new(AgentId(0), &RemoteShell::Ssh(vec!["ssh".into()]), max, None)
}

fn child(agent: u32) -> Wish {
    Wish { agent: AgentId(agent), jobs: Vec::new(), purpose: Purpose::Child }
}

const T: Instant = Instant(1_000_000_000);
const UNTIL: Instant = Instant(60_000_000_000);
const BUSY: &str = "kex_exchange_identification: Connection closed by remote host";

#[test]
fn no_more_shells_than_the_limit_are_in_progress() {
    let mut starts = starts(2);
    (1..=5).for_each(|agent| starts.wish(child(agent)));
    let first = starts.next(T).unwrap().0;
    starts.next(T).unwrap();
    assert!(starts.next(T).is_none());
    assert!(starts.on_linked(AgentId(1)));
    assert!(starts.next(T).is_some());
    assert!(starts.next(T).is_none());
    // The shell of a linked agent ends with the agent; this is not an error.
    assert_eq!(starts.on_exited(T, UNTIL, first, ExitStatus::Exited(1), ""), Outcome::Nothing);
}

#[test]
fn a_busy_host_is_called_again_after_growing_pauses_for_a_limited_time() {
    let mut starts = starts(64);
    starts.wish(child(7));
    let (mut now, mut pauses) = (T, Vec::new());
    loop {
        let (shell, _, _) = starts.next(now).expect("the call is due");
        match starts.on_exited(now, UNTIL, shell, ExitStatus::Exited(255), BUSY) {
            Outcome::Again(Some(Note::Retry { .. })) => {
                let due = starts.deadline().unwrap();
                assert!(starts.next(now).is_none());
                pauses.push(due - now);
                now = due;
            }
            Outcome::Lost(wish, problem) => {
                assert_eq!(wish, child(7));
                assert!(problem.contains("Connection closed"));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(pauses.len() >= 5 && now < UNTIL);
    assert!(pauses.windows(2).all(|pair| pair[1] * 4 > pair[0]), "{pauses:?}");
    assert!(!starts.is_busy());
}

#[test]
fn pauses_differ_between_agents() {
    let starts = starts(1);
    let mut pauses: Vec<u64> = (1..=32).map(|agent| starts.pause_ns(AgentId(agent), 0)).collect();
    assert!(pauses.iter().all(|pause| (PAUSE_NS / 2..=PAUSE_NS).contains(pause)));
    pauses.sort_unstable();
    pauses.dedup();
    assert!(pauses.len() > 28);
}

#[test]
fn a_call_is_repeated_first_to_look_for_the_program_and_to_send_it() {
    let mut starts = Starts::new(AgentId(0), &RemoteShell::Command(vec!["rsh".into()]), 1, None);
    starts.wish(child(1));
    starts.wish(child(2));
    let (shell, _, how) = starts.next(T).unwrap();
    assert_eq!(how, How::Plain);
    assert_eq!(starts.on_exited(T, UNTIL, shell, ExitStatus::Exited(127), ""), Outcome::Again(None));
    let (shell, wish, how) = starts.next(T).unwrap();
    assert_eq!((wish, how), (child(1), How::Look));
    assert_eq!(starts.on_exited(T, UNTIL, shell, ExitStatus::Exited(89), "wireup-needed"), Outcome::Again(None));
    let (shell, _, how) = starts.next(T).unwrap();
    assert_eq!(how, How::Send);
    // The program was stored; a node that needs it a second time is not sent it again.
    let note = Some(Note::Sent { agent: AgentId(1) });
    assert_eq!(starts.on_exited(T, UNTIL, shell, ExitStatus::Exited(0), ""), Outcome::Again(note));
    let (shell, _, how) = starts.next(T).unwrap();
    assert_eq!(how, How::Look);
    assert!(matches!(starts.on_exited(T, UNTIL, shell, ExitStatus::Exited(89), "wireup-needed"), Outcome::Lost(..)));
}

#[test]
fn giving_up_returns_the_wishes_and_their_shells() {
    let mut starts = starts(2);
    (1..=3).for_each(|agent| starts.wish(child(agent)));
    let (first, second) = (starts.next(T).unwrap().0, starts.next(T).unwrap().0);
    starts.on_linked(AgentId(1));
    let (wishes, shells) = starts.give_up(|_| true);
    assert_eq!((wishes, shells), (vec![child(3), child(2)], vec![second]));
    assert!(!starts.is_busy());
    assert_ne!(first, second);
}
