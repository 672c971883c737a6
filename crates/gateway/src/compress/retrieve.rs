//! `GET /v1/retrieve/{hash}`: returns the original of a tool result, or the lines of it that contain the words of a query.

use palimpsest_core::ids::ProjectId;
use palimpsest_engine::EngineError;
use palimpsest_engine::results::search;
use palimpsest_engine::search_threads::SearchBudget;
use regex::{Regex, RegexBuilder};
use serde::Serialize;
use tokio::time::timeout;
use url::form_urlencoded;

use super::metrics::Retrieval;
use super::originals::{self, Original, OriginalHash, ReadError};
use super::{Compression, Problem};
use crate::answer::Reason;
use crate::reading::ReservedMemory;
use crate::thread::{MAX_INLINE_BYTES, on_fitting_thread};

/// The maximum number of words of a query. Further words are ignored.
const MAX_WORDS: usize = 16;
/// The maximum length of a query in bytes. A longer one is ignored.
const MAX_QUERY_BYTES: usize = 1_000;
/// The number of lines before and after each line with a match.
const CONTEXT_LINES: usize = 2;
/// The maximum size of the lines that a query selects, in bytes.
const MAX_SELECTED_BYTES: usize = 64 * 1024;

/// The body of an answer. Guardrails read `original_content`.
#[derive(Serialize)]
struct Answer<'a> {
    hash: &'a str,
    original_content: &'a str,
    original_tokens: u32,
    tool_name: Option<&'a str>,
    /// The numbers of the lines with a match, if the content is a selection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    matching_lines: Vec<usize>,
}

/// The lines of an original that contain words of a query.
struct Selection {
    text: String,
    matching_lines: Vec<usize>,
}

impl Compression {
    /// Answers a request for an original.
    pub(super) async fn answer_retrieve(
        &self,
        hash: &str,
        query: &str,
        project: ProjectId,
        memory: &mut ReservedMemory,
    ) -> Result<String, Reason> {
        let retrieving = self.retrieve(hash, query, &project, memory);
        let answered = timeout(self.prepare_timeout, retrieving).await;
        let answered = answered.unwrap_or_else(|_| {
            tracing::warn!("an original was not read within gateway.prepare_timeout_ms");
            Err(Problem::Unavailable)
        });
        self.metrics.retrieved(match &answered {
            Ok(_) => Retrieval::Found,
            Err(Problem::NotFound) => Retrieval::NotFound,
            Err(_) => Retrieval::Failed,
        });
        answered.map_err(Reason::Compression)
    }

    async fn retrieve(
        &self,
        hash: &str,
        query: &str,
        project: &ProjectId,
        memory: &mut ReservedMemory,
    ) -> Result<String, Problem> {
        let hash = OriginalHash::parse(hash).ok_or(Problem::NotFound)?;
        let found = originals::find(&self.engine, project, &hash).await;
        let found = found.map_err(|error| match error {
            ReadError::NotFound => Problem::NotFound,
            ReadError::Engine(error) => unavailable(&error),
        })?;
        // The original exists twice: as it was read, and in the answer.
        let size = found.bytes().saturating_mul(2);
        memory.reserve(size).map_err(|_| Problem::Memory)?;
        let is_large = found.bytes() > MAX_INLINE_BYTES;
        let read = found.read(&self.engine).await;
        let mut original = read.map_err(|error| unavailable(&error))?;
        let selected = match pattern(query) {
            Some(pattern) => {
                let (back, selected) = self.select(project, original, pattern).await?;
                original = back;
                selected
            }
            None => None,
        };
        let write = move || write(&hash, &original, selected.as_ref());
        let written = on_fitting_thread(is_large, write).await;
        written.ok().flatten().ok_or(Problem::Defect)
    }

    /// Searches an original. Returns no selection if no line matches.
    async fn select(
        &self,
        project: &ProjectId,
        original: Original,
        pattern: Regex,
    ) -> Result<(Original, Option<Selection>), Problem> {
        let searching = move |work: &mut SearchBudget| {
            let page = (1, MAX_SELECTED_BYTES);
            let found = search(&original.text, &pattern, CONTEXT_LINES, page, work);
            // A search that takes too much work selects nothing, and the caller gets the whole content.
            let found = found.map_or_else(|_| Vec::new(), |(found, _)| found);
            let parts: Vec<&str> = (found.iter())
                .map(|lines| &original.text[lines.range.clone()])
                .collect();
            let selection = (!found.is_empty()).then(|| Selection {
                text: parts.join("...\n"),
                matching_lines: found
                    .iter()
                    .flat_map(|lines| lines.matching.clone())
                    .collect(),
            });
            (original, selection)
        };
        let work = SearchBudget::of_call();
        let searched = self.engine.searches.run(project, work, searching).await;
        let (answer, _) = searched.map_err(|error| unavailable(&error))?;
        Ok(answer)
    }
}

fn unavailable(error: &EngineError) -> Problem {
    tracing::warn!(%error, "cannot read an original");
    Problem::Unavailable
}

/// Returns the pattern for the words of `query=…`. `None` without words.
fn pattern(query: &str) -> Option<Regex> {
    let mut fields = form_urlencoded::parse(query.as_bytes());
    let (_, words) = fields.find(|(name, _)| name == "query")?;
    if words.len() > MAX_QUERY_BYTES {
        return None;
    }
    // The words are plain text. An unescaped `(` or `.*` would be a pattern.
    let words = words.split_whitespace().take(MAX_WORDS).map(regex::escape);
    let words: Vec<String> = words.collect();
    // An empty pattern would match every line.
    if words.is_empty() {
        return None;
    }
    let mut builder = RegexBuilder::new(&words.join("|"));
    builder.case_insensitive(true).build().ok()
}

fn write(hash: &OriginalHash, original: &Original, selected: Option<&Selection>) -> Option<String> {
    let answer = Answer {
        hash: hash.as_str(),
        original_content: selected.map_or(&*original.text, |selected| &*selected.text),
        original_tokens: original.tokens,
        tool_name: Some(&*original.tool).filter(|tool| !tool.is_empty()),
        matching_lines: selected.map_or_else(Vec::new, |selected| selected.matching_lines.clone()),
    };
    serde_json::to_string(&answer).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_query_become_a_pattern() {
        let text = |query: &str| pattern(query).map(|pattern| pattern.as_str().to_owned());
        assert_eq!(
            text("x=1&query=time+out%2E").as_deref(),
            Some(r"time|out\.")
        );
        assert_eq!(text("query=%20"), None);
        assert_eq!(text("q=a"), None);
        assert_eq!(text(&format!("query={}", "a".repeat(1_001))), None);
        assert!(pattern("query=ERROR").unwrap().is_match("an error"));
    }
}
