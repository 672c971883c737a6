//! Tests of the encoding of facts.

use palimpsest_core::memory::fact::{
    Answer, ChangedFile, CommandRuns, Declined, Exploration, FailedAction, FailedActionKind,
    Failure, FileWrite, Fix, KnownName, MemoryFact, NameKind, OpenWorkItem, OtherNames, Request,
    RunOutcome, Source, Step, StepActions, StepKind, StepTarget, Turn, TurnCounts, WorkItems,
};
use palimpsest_core::memory::{MemoryContent, MemoryEntry};

use super::error::DecodeError;
use super::stored_as::StoredAs;
use super::v1;
use super::v1::memory_entry::Fact as Stored;

fn action(kind: FailedActionKind) -> FailedAction {
    let name = "a name".into();
    FailedAction { kind, name }
}

fn source(text: &str) -> Source {
    Source {
        name: "a name".into(),
        text: text.into(),
    }
}

fn step(kind: StepKind) -> MemoryFact {
    let target = |failed| StepTarget {
        name: "a".into(),
        failed,
    };
    MemoryFact::Step(Step {
        statement: "said".into(),
        actions: vec![StepActions {
            kind,
            targets: vec![target(true), target(false)],
        }],
    })
}

/// Returns facts of all kinds, with all values of their enums.
#[expect(clippy::too_many_lines, reason = "one list of values")]
fn facts() -> Vec<MemoryFact> {
    use FailedActionKind as Action;
    let words = || Box::<str>::from("words");
    let names = || vec![words(), "others".into()];
    let item = |number: Option<&str>, is_started| OpenWorkItem {
        number: number.map(Into::into),
        text: words(),
        is_started,
    };
    let file = |written| {
        MemoryFact::ChangedFile(ChangedFile {
            path: words(),
            written,
            edits: 2,
            symbols: names(),
        })
    };
    let runs = |last| {
        MemoryFact::CommandRuns(CommandRuns {
            command: words(),
            others: names(),
            runs: 3,
            failed: 1,
            last,
            output: words(),
        })
    };
    let known = |kind, is_shown| KnownName {
        name: words(),
        kind,
        rank: 2,
        is_shown,
    };
    let request = |is_first| {
        MemoryFact::Request(Request {
            is_first,
            words: words(),
        })
    };
    let failure = |kind, next: Option<&str>, is_fixed| {
        MemoryFact::Failure(Failure {
            action: action(kind),
            key: "key".into(),
            times: 4,
            why: words(),
            next: next.map(Into::into),
            is_fixed,
        })
    };
    let answer = |request: Option<&str>| {
        MemoryFact::Answer(Answer {
            request: request.map(Into::into),
            text: words(),
        })
    };
    let turn = |request: Option<&str>, ended: Option<&str>| {
        MemoryFact::Turn(Turn {
            request: request.map(Into::into),
            counts: TurnCounts {
                reads: 1,
                edits: 2,
                runs: 3,
                failed: 4,
                others: 5,
            },
            files: names(),
            has_more_files: ended.is_some(),
            ended: ended.map(Into::into),
        })
    };
    vec![
        MemoryFact::Verbatim(words()),
        MemoryFact::Verbatim("".into()),
        MemoryFact::Title(words()),
        MemoryFact::LatestRequest(words()),
        MemoryFact::LatestRequestAnswered,
        MemoryFact::EarlierStatement(words()),
        MemoryFact::LatestStatement(words()),
        MemoryFact::LatestSteps(words()),
        MemoryFact::WorkItems(WorkItems {
            left: vec![item(None, true), item(Some("7"), false)],
            done: 3,
        }),
        MemoryFact::OpenCalls(words()),
        MemoryFact::FailingCommands(words()),
        request(true),
        request(false),
        MemoryFact::Root(words()),
        file(None),
        file(Some(FileWrite::Created)),
        file(Some(FileWrite::Replaced)),
        MemoryFact::FilesEditedOnce(names()),
        MemoryFact::FilesRead(names()),
        MemoryFact::OtherNames(OtherNames {
            names: vec![
                known(NameKind::Path, true),
                known(NameKind::Identifier, false),
            ],
            messages: 9,
        }),
        runs(RunOutcome::Passed),
        runs(RunOutcome::Failed),
        runs(RunOutcome::Open),
        MemoryFact::CommandsRunOnce(names()),
        MemoryFact::Exploration(Exploration {
            commands: 1,
            searches: 2,
            programs: names(),
        }),
        failure(Action::Run, None, false),
        failure(Action::Edit, Some("edited"), true),
        failure(Action::Read, None, true),
        failure(Action::Fetch, None, true),
        failure(Action::Tool, None, true),
        MemoryFact::Declined(Declined {
            action: action(Action::Run),
            why: words(),
        }),
        MemoryFact::Correction(words()),
        MemoryFact::Explanation(words()),
        MemoryFact::Document(source("text")),
        MemoryFact::Lookup(source("")),
        MemoryFact::Rule(words()),
        MemoryFact::ToolAnswer(source("text")),
        MemoryFact::Fix(Fix {
            action: action(Action::Run),
            why: words(),
            change: words(),
        }),
        answer(None),
        answer(Some("request")),
        turn(None, None),
        turn(Some("request"), Some("ended")),
        step(StepKind::Edit),
        step(StepKind::Write),
        step(StepKind::Run),
        step(StepKind::Look),
        step(StepKind::Fetch),
        step(StepKind::Delegate),
        step(StepKind::Call),
        step(StepKind::Read),
    ]
}

#[test]
fn facts_of_all_kinds_survive_a_round_trip() {
    let mut sections: [Vec<MemoryEntry>; 10] = Default::default();
    for (version, fact) in (0..).zip(facts()) {
        let section = usize::try_from(version % 10).unwrap();
        sections[section].push(MemoryEntry { fact, version });
    }
    let content = MemoryContent::from_entries(sections);
    let stored: Vec<v1::MemorySection> = content.to_proto();
    assert_eq!(MemoryContent::from_proto(stored), Ok(content));
}

#[test]
fn damaged_content_is_an_error() {
    let damaged = |sections: Vec<v1::MemorySection>| {
        let error = MemoryContent::from_proto(sections).unwrap_err();
        assert!(matches!(error, DecodeError::Damaged(_)), "{error:?}");
    };
    damaged(vec![v1::MemorySection::default(); 9]);
    let entry = |fact| v1::MemorySection {
        entries: vec![v1::MemoryEntry { version: 1, fact }],
    };
    damaged(vec![entry(None); 10]);
    let runs = Stored::CommandRuns(v1::MemoryCommandRuns::default());
    damaged(vec![entry(Some(runs)); 10]);
    let failure = Stored::Failure(v1::MemoryFailure::default());
    damaged(vec![entry(Some(failure)); 10]);
    let step = Stored::Step(v1::MemoryStep {
        statement: String::new(),
        actions: vec![v1::MemoryStepActions::default()],
    });
    damaged(vec![entry(Some(step)); 10]);
}
