//! Encoding of the facts of session memory.

use palimpsest_core::memory::fact::{
    Answer, ChangedFile, CommandRuns, Declined, Exploration, FailedAction, FailedActionKind,
    Failure, FileWrite, Fix, KnownName, MemoryFact, NameKind, OpenWorkItem, OtherNames, Request,
    RunOutcome, Source, Step, StepActions, StepKind, StepTarget, Turn, TurnCounts, WorkItems,
};
use palimpsest_core::memory::{MemoryContent, MemoryEntry, SectionKind};

use super::error::DecodeError;
use super::stored_as::StoredAs;
use super::v1;
use super::v1::memory_entry::Fact as Stored;

impl StoredAs<Vec<v1::MemorySection>> for MemoryContent {
    fn to_proto(&self) -> Vec<v1::MemorySection> {
        let sections = SectionKind::ALL.into_iter();
        let sections = sections.map(|kind| v1::MemorySection {
            entries: self.entries(kind).iter().map(StoredAs::to_proto).collect(),
        });
        sections.collect()
    }

    fn from_proto(stored: Vec<v1::MemorySection>) -> Result<Self, DecodeError> {
        let sections = stored.into_iter();
        let sections = sections.map(|section| StoredAs::from_proto(section.entries));
        let sections: Vec<Vec<MemoryEntry>> = sections.collect::<Result<_, _>>()?;
        let sections = sections.try_into();
        let sections = sections.map_err(|_| DecodeError::Damaged("not ten sections"))?;
        Ok(Self::from_entries(sections))
    }
}

stored_struct! { MemoryEntry = MemoryEntry { fact, version } }

/// Stores facts as the variants of the same name. Both lists are complete.
macro_rules! stored_facts {
    ($($fact:ident),* $(,)?) => {
        impl StoredAs<Option<Stored>> for MemoryFact {
            fn to_proto(&self) -> Option<Stored> {
                Some(match self {
                    $(Self::$fact(value) => Stored::$fact(value.to_proto()),)*
                    // The fact has no data, but a oneof needs a value. Only its presence counts.
                    Self::LatestRequestAnswered => Stored::LatestRequestAnswered(true),
                })
            }

            fn from_proto(stored: Option<Stored>) -> Result<Self, DecodeError> {
                Ok(match stored.ok_or(DecodeError::Damaged("an unknown fact"))? {
                    $(Stored::$fact(value) => Self::$fact(StoredAs::from_proto(value)?),)*
                    Stored::LatestRequestAnswered(_) => Self::LatestRequestAnswered,
                })
            }
        }
    };
}

stored_facts! {
    Verbatim,
    Title,
    LatestRequest,
    EarlierStatement,
    LatestStatement,
    LatestSteps,
    WorkItems,
    OpenCalls,
    FailingCommands,
    Request,
    Root,
    ChangedFile,
    FilesEditedOnce,
    FilesRead,
    CommandRuns,
    CommandsRunOnce,
    Exploration,
    Failure,
    Declined,
    Correction,
    Explanation,
    Document,
    Lookup,
    Rule,
    ToolAnswer,
    Fix,
    Answer,
    Turn,
    Step,
    OtherNames,
}

/// A list of names. A oneof of the proto cannot contain a list without a message.
impl StoredAs<v1::MemoryNames> for Vec<Box<str>> {
    fn to_proto(&self) -> v1::MemoryNames {
        v1::MemoryNames {
            names: StoredAs::to_proto(self),
        }
    }

    fn from_proto(stored: v1::MemoryNames) -> Result<Self, DecodeError> {
        StoredAs::from_proto(stored.names)
    }
}

stored_struct! { WorkItems = MemoryWorkItems { left, done } }

stored_struct! { OpenWorkItem = MemoryWorkItem { number, text, is_started } }

stored_struct! { Request = MemoryRequest { is_first, words } }

stored_struct! { ChangedFile = MemoryChangedFile { path, written, edits, symbols } }

stored_enum! {
    FileWrite = MemoryFileWrite { Created, Replaced }
    or "a file that was written in an unknown way"
}

stored_struct! {
    CommandRuns = MemoryCommandRuns { command, others, runs, failed, last, output }
}

stored_enum! {
    RunOutcome = MemoryRunOutcome { Passed, Failed, Open }
    or "a run without an outcome"
}

stored_struct! { Exploration = MemoryExploration { commands, searches, programs } }

stored_struct! {
    FailedAction = MemoryAction { kind, name }
    or "a failure without an action"
}

stored_enum! {
    FailedActionKind = MemoryActionKind { Run, Edit, Read, Fetch, Tool }
    or "an action of an unknown kind"
}

stored_struct! { Failure = MemoryFailure { action, key, times, why, next, is_fixed } }

stored_struct! { Declined = MemoryDeclined { action, why } }

stored_struct! { Fix = MemoryFix { action, why, change } }

stored_struct! { Source = MemorySource { name, text } }

stored_struct! { Answer = MemoryAnswer { request, text } }

stored_struct! {
    Turn = MemoryTurn { request, files, has_more_files, ended }
    inlined { counts: TurnCounts { reads, edits, runs, failed, others } }
}

stored_struct! { Step = MemoryStep { statement, actions } }

stored_struct! { StepActions = MemoryStepActions { kind, targets } }

stored_enum! {
    StepKind = MemoryStepKind { Edit, Write, Run, Look, Fetch, Delegate, Call, Read }
    or "actions of an unknown kind"
}

stored_struct! { OtherNames = MemoryOtherNames { names, messages } }

stored_struct! { KnownName = MemoryKnownName { name, kind, rank, is_shown } }

stored_enum! {
    NameKind = MemoryNameKind { Path, Identifier }
    or "a name of an unknown kind"
}

stored_struct! { StepTarget = MemoryStepTarget { name, failed } }
