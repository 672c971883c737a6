//! Search patterns.

use palimpsest_core::limits::Limits;
use palimpsest_proto::context::v1;
use regex::{Regex, RegexBuilder};
use v1::text_pattern::Pattern;

use super::{FieldError, required};

/// The maximum memory of a compiled pattern: 1 MiB.
const MAX_PROGRAM_BYTES: usize = 1024 * 1024;
/// The maximum memory of a search for lazily computed states: 2 MiB.
const MAX_CACHE_BYTES: usize = 2 * 1024 * 1024;

/// The error for an invalid pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The field is missing or too long.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The expression does not compile. The error never contains the expression.
    #[error("{field} is not a regular expression (character {char_offset})")]
    Syntax {
        /// The path of the field.
        field: String,
        /// The position of the error in characters, starting at 0.
        char_offset: usize,
    },
    /// The expression matches the empty string.
    #[error("{field} matches the empty string")]
    Empty {
        /// The path of the field.
        field: String,
    },
}

/// Compiles a pattern for searches in whole texts. A pattern that matches the empty string is rejected: it matches
/// at every position and may scan the rest of the text each time.
pub fn search_pattern(
    pattern: Option<v1::TextPattern>,
    limits: &Limits,
    field: &str,
) -> Result<Regex, PatternError> {
    let compiled = text_pattern(pattern, limits, field)?;
    // An empty match is found at every position, so `a*` would match each character of a text.
    let shortest = regex_syntax::parse(compiled.as_str()).map(|hir| hir.properties().minimum_len());
    match shortest {
        Ok(Some(0)) | Err(_) => Err(PatternError::Empty {
            field: format!("{field}.regex"),
        }),
        // A pattern without a minimum length matches nothing.
        Ok(_) => Ok(compiled),
    }
}

/// Compiles a pattern within the limits for its length and memory.
pub fn text_pattern(
    pattern: Option<v1::TextPattern>,
    limits: &Limits,
    field: &str,
) -> Result<Regex, PatternError> {
    let pattern = pattern.ok_or_else(|| FieldError::missing(field))?;
    let (name, text, expression) = match pattern.pattern {
        None => return Err(FieldError::missing(format!("{field}.pattern")).into()),
        Some(Pattern::Literal(text)) => {
            let escaped = regex::escape(&text);
            ("literal", text, escaped)
        }
        Some(Pattern::Regex(text)) => ("regex", text.clone(), text),
    };
    let field = format!("{field}.{name}");
    required(&text, &field)?;
    // Patterns come from callers and models. Limits on length and memory bound the cost of a search.
    let (limit, len) = (limits.max_pattern_chars, text.chars().count());
    if len > limit {
        let what = format!("must have at most {limit} characters, has {len}");
        return Err(FieldError::invalid(field, what).into());
    }
    RegexBuilder::new(&expression)
        .case_insensitive(pattern.ignore_case)
        .size_limit(MAX_PROGRAM_BYTES)
        .dfa_size_limit(MAX_CACHE_BYTES)
        .build()
        // Errors of `regex` contain no offset, so `char_offset` parses the expression again.
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                FieldError::invalid(field, "is too large once it is compiled").into()
            }
            _ => PatternError::Syntax {
                char_offset: char_offset(&expression),
                field,
            },
        })
}

fn char_offset(expression: &str) -> usize {
    let at = match regex_syntax::Parser::new().parse(expression) {
        Err(regex_syntax::Error::Parse(error)) => error.span().start.offset,
        Err(regex_syntax::Error::Translate(error)) => error.span().start.offset,
        _ => 0,
    };
    // The parser counts bytes, and the error counts characters as its reader does.
    expression
        .char_indices()
        .take_while(|(index, _)| *index < at)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(pattern: Pattern, ignore_case: bool) -> Result<Regex, PatternError> {
        let pattern = v1::TextPattern {
            ignore_case,
            pattern: Some(pattern),
        };
        text_pattern(Some(pattern), &Limits::default(), "pattern")
    }

    #[test]
    fn literals_are_escaped_and_case_sensitive_by_default() {
        let dot = compiled(Pattern::Literal("a.c".into()), false).unwrap();
        assert!(dot.is_match("xa.cx") && !dot.is_match("abc") && !dot.is_match("A.C"));
        assert!(
            compiled(Pattern::Literal("a.c".into()), true)
                .unwrap()
                .is_match("A.C")
        );
        assert!(
            compiled(Pattern::Regex("a.c".into()), false)
                .unwrap()
                .is_match("abc")
        );
    }

    #[test]
    fn search_patterns_that_match_the_empty_string_are_rejected() {
        let searched = |text: &str| {
            let pattern = Some(v1::TextPattern {
                ignore_case: false,
                pattern: Some(Pattern::Regex(text.into())),
            });
            search_pattern(pattern, &Limits::default(), "pattern")
        };
        for empty in [r"(?s).*[~\x00-\x08]|", "a*", "^$", r"\b", "(|a)", "a{0,3}"] {
            let field = "pattern.regex".to_owned();
            assert_eq!(
                searched(empty).unwrap_err(),
                PatternError::Empty { field },
                "{empty}"
            );
        }
        for fine in ["a+", r"\bx", "a|b", r"(?s)a.*b"] {
            assert!(searched(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn invalid_patterns_are_rejected_with_their_field() {
        let error = |pattern| compiled(pattern, false).unwrap_err();
        // The offset counts characters: `ä` and `ö` have two bytes each.
        assert_eq!(
            error(Pattern::Regex("äö(".into())),
            PatternError::Syntax {
                field: "pattern.regex".into(),
                char_offset: 2,
            }
        );
        let field = |error| match error {
            PatternError::Field(error) => error.to_string(),
            PatternError::Syntax { .. } | PatternError::Empty { .. } => unreachable!(),
        };
        assert_eq!(
            field(error(Pattern::Literal(String::new()))),
            "pattern.literal must be set"
        );
        assert_eq!(
            field(error(Pattern::Literal("x".repeat(1_025)))),
            "pattern.literal must have at most 1024 characters, has 1025"
        );
        assert_eq!(
            field(error(Pattern::Regex(r"(\w{500}){500}".into()))),
            "pattern.regex is too large once it is compiled"
        );
        let limits = Limits::default();
        let none = text_pattern(None, &limits, "pattern").unwrap_err();
        assert_eq!(field(none), "pattern must be set");
        let empty = text_pattern(Some(v1::TextPattern::default()), &limits, "pattern");
        assert_eq!(field(empty.unwrap_err()), "pattern.pattern must be set");
    }
}
