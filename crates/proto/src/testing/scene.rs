//! What one part of an agent sees of the agent, for its tests; and the part with its surroundings.

use super::specs::{session, standing};
use crate::io::LinkId;
use crate::link::Neighbours;
use crate::session::inputs::starter;
use crate::session::{Effect, Effects, Jobs, Policy, View};
use crate::time::Instant;
use wireup_coll::tree::Tree;
use wireup_wire::frame::Kind;
use wireup_wire::ids::AgentId;
use wireup_wire::peer::{self, SessionSpec};
use wireup_wire::talk::Control;

/// The data of a view: agent `me` of fifteen, fan-out 2.
pub struct Scene {
    pub now: Instant,
    pub me: AgentId,
    pub session: SessionSpec,
    pub neighbours: Neighbours,
    pub addresses: Vec<String>,
    pub jobs: Jobs,
    pub is_leaving: bool,
}

impl Scene {
    pub fn new(me: u32, session: SessionSpec) -> Scene {
        Scene {
            now: Instant(1_000_000_000),
            me: AgentId(me),
            session,
            neighbours: Neighbours::default(),
            addresses: vec!["10.0.0.1:1".into()],
            jobs: Jobs::default(),
            is_leaving: false,
        }
    }

    pub fn one_run(me: u32) -> Scene {
        Scene::new(me, session(15))
    }

    pub fn standing(me: u32) -> Scene {
        Scene::new(me, standing(session(15)))
    }

    /// A scene with links to all children and, unless it is the root, to the parent.
    pub fn linked(mut self) -> Scene {
        if self.me != AgentId(0) {
            self.neighbours.on_link_up(LinkId(0));
        }
        for child in self.tree().children(self.me) {
            self.neighbours.on_child_up(AgentId(child), LinkId(child));
        }
        self
    }

    pub fn tree(&self) -> Tree {
        Tree::new(15, 2)
    }

    pub fn view(&self) -> View<'_> {
        View {
            now: self.now,
            me: self.me,
            tree: self.tree(),
            session: &self.session,
            policy: Policy::of(&self.session),
            neighbours: &self.neighbours,
            addresses: &self.addresses,
            jobs: &self.jobs,
            is_leaving: self.is_leaving,
        }
    }

    /// Applies an effect to the neighbours, as the agent would.
    fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::Expect(child) | Effect::Starter(starter::Input::Start(child)) => self.neighbours.expect(*child),
            Effect::Forget(child) => drop(self.neighbours.forget(*child)),
            Effect::Cut(child) => {
                self.neighbours.forget(*child);
                self.neighbours.on_child_down(*child);
            }
            Effect::TakeIn { link, agent, .. } => drop(self.neighbours.on_child_up(*agent, *link)),
            _ => {}
        }
    }
}

/// A part as its tests use it.
pub trait Part {
    type Input;
    const TICK: Option<Self::Input> = None;

    fn handle(&mut self, view: &View<'_>, input: Self::Input, fx: &mut Effects);

    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// An effect that is a further input for the part itself. By default these are left in the list for the test to
    /// look at.
    #[expect(clippy::result_large_err, reason = "it is either of the two")]
    fn own_input(effect: Effect) -> Result<Self::Input, Effect> {
        Err(effect)
    }
}

/// A part in a scene.
pub struct Bench<P> {
    pub scene: Scene,
    pub part: P,
}

impl<P: Part> Bench<P> {
    pub fn new(scene: Scene, part: P) -> Bench<P> {
        Bench { scene, part }
    }

    /// Handles an input and the further inputs that the part gives itself; returns all other effects in order.
    pub fn input(&mut self, input: P::Input) -> Effects {
        let (mut all, mut stack) = (Effects::default(), Vec::new());
        let mut next = Some(input);
        loop {
            if let Some(input) = next {
                let mut fx = Effects::default();
                self.part.handle(&self.scene.view(), input, &mut fx);
                stack.extend(fx.reversed());
            }
            let Some(effect) = stack.pop() else { return all };
            next = match P::own_input(effect) {
                Ok(input) => Some(input),
                Err(effect) => {
                    self.scene.apply(&effect);
                    all.push(effect);
                    None
                }
            };
        }
    }

    pub fn tick(&mut self) -> Effects {
        self.input(P::TICK.expect("the part has timeouts"))
    }

    /// Moves the clock to the part's deadline.
    pub fn tick_when_due(&mut self) -> Effects {
        self.scene.now = self.part.deadline().expect("the part waits for a time");
        self.tick()
    }
}

impl Effects {
    /// The messages towards the root.
    pub fn sent_up(&self) -> Vec<&Control> {
        self.iter()
            .filter_map(|effect| if let Effect::Up(_, message) = effect { Some(message) } else { None })
            .collect()
    }

    /// The messages to a child.
    pub fn sent_to_child(&self, child: u32) -> Vec<&Control> {
        let message = |effect| match effect {
            &Effect::Child(agent, ref message) if agent.0 == child => Some(message),
            _ => None,
        };
        self.iter().filter_map(message).collect()
    }

    /// The messages on a link.
    pub fn sent_on(&self, to: LinkId) -> Vec<Control> {
        let message = |effect: &Effect| match effect {
            Effect::Send(link, frame) if *link == to && frame.kind == Kind::Control => {
                Some(peer::decode(&frame.payload).expect("our own message"))
            }
            _ => None,
        };
        self.iter().filter_map(message).collect()
    }
}
