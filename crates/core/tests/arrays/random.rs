//! Random edits of a caller's array. The array itself is the oracle: after each request, the links and the view equal it.

use palimpsest_core::array::{Identity, Incoming, SyncPlan};
use proptest::prelude::*;

use crate::world::{Request, World};

/// A change that a client makes to its array before the next request.
#[derive(Debug, Clone)]
enum Edit {
    /// The last response, in one of several forms, and new input.
    Continue { form: usize, input: usize },
    /// Nothing.
    Retry,
    /// New input, without the response.
    Interrupt { input: usize },
    /// Another text for one element.
    Change { at: usize, input: usize },
    /// Fewer elements at the end.
    Shorten { to: usize },
    /// Fewer elements at the start, or behind the first.
    Trim { count: usize, keeps_first: bool },
    /// A summary in place of elements at the start.
    Summarize { count: usize, keeps_first: bool },
    /// A further block in the last element.
    Extend,
    /// A shorter result.
    Clear,
    /// No thinking in earlier responses, and blank messages.
    Respell,
    /// Results in the opposite order.
    Reorder,
    /// Another system message.
    Lead { input: usize },
}

fn edit() -> impl Strategy<Value = Edit> {
    let (index, input) = (|| 0_usize..12, || 0_usize..3);
    prop_oneof![
        6 => (0_usize..6, input()).prop_map(|(form, input)| Edit::Continue { form, input }),
        2 => Just(Edit::Retry),
        1 => input().prop_map(|input| Edit::Interrupt { input }),
        1 => (index(), input()).prop_map(|(at, input)| Edit::Change { at, input }),
        1 => index().prop_map(|to| Edit::Shorten { to }),
        1 => (index(), any::<bool>()).prop_map(|(count, keeps_first)| Edit::Trim { count, keeps_first }),
        1 => (index(), any::<bool>())
            .prop_map(|(count, keeps_first)| Edit::Summarize { count, keeps_first }),
        1 => Just(Edit::Extend),
        1 => Just(Edit::Clear),
        1 => Just(Edit::Respell),
        2 => Just(Edit::Reorder),
        1 => input().prop_map(|input| Edit::Lead { input }),
    ]
}

#[derive(Debug)]
struct Client {
    lines: Vec<String>,
    response: String,
    rounds: usize,
}

impl Client {
    /// Returns the first element of the conversation.
    fn start(&self) -> usize {
        self.lines
            .iter()
            .take_while(|line| line.starts_with("system"))
            .count()
    }

    /// Edits the array. Returns true if it only continues.
    fn edit(&mut self, edit: &Edit) -> bool {
        let (start, len) = (self.start(), self.lines.len());
        let index = |at: usize| start + at % (len - start).max(1);
        match *edit {
            Edit::Continue { form, input } => {
                let response = &self.response;
                // The same response unchanged, without thinking, with white space, in two blocks, and in two messages.
                let echo = match form {
                    0 | 1 => vec![response.clone()],
                    2 => vec![response.replace("~hm|", "")],
                    3 => vec![response.replace("done", "done ")],
                    4 => vec![response.replace("done", "do|ne")],
                    _ => vec![
                        format!("model: ~{}", self.rounds),
                        response.replace("~hm|", ""),
                    ],
                };
                let calls = response.split(['|', ' ']);
                let calls = calls.filter_map(|block| block.strip_prefix('!'));
                let results: Vec<String> =
                    calls.map(|id| format!("={id} output {input}")).collect();
                self.lines.extend(echo);
                match (&results[..], form % 2) {
                    ([], _) => self.lines.push(format!("user: {}", ["a", "b", "c"][input])),
                    // All results in one element, or each in its own.
                    (_, 0) => self.lines.push(format!("user: {}", results.join("|"))),
                    _ => {
                        let results = results.iter().map(|result| format!("user: {result}"));
                        self.lines.extend(results);
                    }
                }
                return true;
            }
            Edit::Retry => return true,
            Edit::Interrupt { input } => {
                self.lines.push(format!("user: {}", ["a", "b", "c"][input]));
            }
            Edit::Change { at, input } => {
                if let Some(line) = self.lines.get_mut(index(at)) {
                    *line = format!("user: {}", ["a", "b", "x"][input]);
                }
            }
            Edit::Shorten { to } => self.lines.truncate(index(to) + 1),
            Edit::Trim { count, keeps_first } => {
                let from = (start + usize::from(keeps_first)).min(len);
                self.lines.drain(from..index(count).clamp(from, len));
            }
            Edit::Summarize { count, keeps_first } => {
                let from = (start + usize::from(keeps_first)).min(len);
                let summary = format!("user: summary {}", self.rounds);
                self.lines
                    .splice(from..index(count).clamp(from, len), [summary]);
            }
            Edit::Extend => self.lines[len - 1].push_str("|more"),
            Edit::Clear => {
                for line in &mut self.lines {
                    for input in 0..3 {
                        *line = line.replace(&format!(" output {input}"), " .");
                    }
                }
            }
            Edit::Respell => {
                for line in &mut self.lines {
                    *line = line.replace("~hm|", "");
                }
                self.lines.insert(index(2), "user: ".to_owned());
            }
            Edit::Reorder => {
                for line in &mut self.lines {
                    if let Some(blocks) = line.strip_prefix("user: ") {
                        let mut blocks: Vec<&str> = blocks.split('|').collect();
                        let results = blocks.iter().take_while(|block| block.starts_with('='));
                        let results = results.count();
                        blocks[..results].reverse();
                        *line = format!("user: {}", blocks.join("|"));
                    }
                }
                let is_result = |line: &String| {
                    let blocks = line.strip_prefix("user: ");
                    blocks
                        .is_some_and(|blocks| blocks.split('|').all(|block| block.starts_with('=')))
                };
                let runs = self.lines.chunk_by_mut(|a, b| is_result(a) && is_result(b));
                runs.for_each(<[String]>::reverse);
                return true;
            }
            Edit::Lead { input } => {
                self.lines.drain(..start);
                self.lines.insert(0, format!("system: {input}"));
            }
        }
        false
    }
}

/// Sends the client's array and returns the session that took it.
fn send(world: &World, client: &Client, identity: Identity, is_summary: bool) -> (World, SyncPlan) {
    let mut request = Request::new(&client.lines);
    request.caller_compacted = is_summary;
    let plan = world.plan(&request, identity);
    let mut next = world.clone();
    match &plan {
        SyncPlan::Change(change) => {
            if identity == Identity::Inferred {
                assert!(!change.rewinds && change.adoption.is_none(), "{change:#?}");
                // A session that was found by content loses no message to another array.
                assert!(world.view.iter().all(|at| next.view.contains(at)));
            }
            next.change(&request, change);
        }
        SyncPlan::Fork { links } => {
            next = world.fork(*links);
            let SyncPlan::Change(change) = next.plan(&request, Identity::Named) else {
                panic!("a fork takes the array");
            };
            next.change(&request, &change);
        }
        SyncPlan::OtherArray { .. } => {
            next = World::default();
            let SyncPlan::Change(change) = next.plan(&request, identity) else {
                panic!("a new session takes the array");
            };
            next.change(&request, &change);
        }
    }
    let again = next.plan(&request, Identity::Named);
    let SyncPlan::Change(again) = again else {
        panic!("the session that took the array takes it again");
    };
    assert!(again.is_empty(), "a retry changes something: {again:#?}");
    (next, plan)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn after_any_edits_the_links_and_the_view_equal_the_array(
        edits in prop::collection::vec(edit(), 1..14),
        is_named in any::<bool>(),
        has_lead in any::<bool>(),
    ) {
        let identity = if is_named { Identity::Named } else { Identity::Inferred };
        let lead = has_lead.then(|| "system: s".to_owned());
        let lines = lead.into_iter().chain(["user: a".to_owned()]).collect();
        let mut client = Client { lines, response: String::new(), rounds: 0 };
        let (mut world, _) = send(&World::default(), &client, identity, false);
        for edit in &edits {
            client.rounds += 1;
            let round = client.rounds;
            client.response = match round % 4 {
                0 => format!("model: ~hm|done {round}|!{round}"),
                1 => format!("model: ~hm|done {round}"),
                2 => format!("model: !{round}"),
                _ => format!("model: ~hm|done {round}|!{round}|!{round}b|!{round}c"),
            };
            world.respond(&[&client.response]);
            let before = client.lines.len();
            let elements = world.elements(&client.lines);
            // After a trimmed array, the session has more messages than the client, so the counts below do not apply.
            let is_exact = world.has_exactly(&Incoming::new(&elements, true));
            let continues = client.edit(edit) && is_exact;
            let is_summary = matches!(edit, Edit::Summarize { .. });
            let (next, plan) = send(&world, &client, identity, is_summary);
            if continues {
                let SyncPlan::Change(change) = plan else {
                    panic!("a continued array is taken: {plan:?}");
                };
                prop_assert!(!change.rewinds && change.adoption.is_none());
                let new = client.lines.len() - before;
                prop_assert_eq!(next.view.len(), world.view.len() + new);
            }
            world = next;
        }
    }
}
