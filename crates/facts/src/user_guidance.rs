//! Detection of corrections and rules in user inputs, by the beginnings of sentences.

use super::text::sentences;

/// The kind of a lesson in a user input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuidanceKind {
    /// A statement that the work is wrong.
    Correction,
    /// An instruction for all further work.
    Rule,
}

/// The beginnings of corrections in lower case, one list per language.
const CORRECTIONS: [&[&str]; 8] = [
    &[
        "no,", "no ", "no.", "nope", "wrong", "that's wrong", "that is wrong", "that's not",
        "that is not", "this is wrong", "this is not what", "not what i", "you forgot",
        "you missed", "you broke", "undo", "revert", "stop ", "wait,", "actually,", "actually ",
        "it still", "still ", "it doesn't", "it does not", "that doesn't", "that does not",
        "why did you",
    ],
    &[
        "nein", "falsch", "das stimmt nicht", "das ist falsch", "du hast vergessen", "immer noch",
        "doch nicht",
    ],
    &[
        "eso no", "no es", "incorrecto", "está mal", "te olvidaste", "todavía no", "sigue sin",
    ],
    &[
        "non,", "non ", "c'est faux", "ce n'est pas", "tu as oublié", "toujours pas",
    ],
    &["não", "está errado", "isso não"],
    &[
        "不对", "不是", "错了", "你忘了", "还是不", "撤销", "回滚", "不行",
    ],
    &["違う", "違います", "いや", "そうではなく"],
    &["нет,", "неправильно", "не то"],
];

/// The beginnings of rules in lower case, one list per language.
const RULES: [&[&str]; 8] = [
    &[
        "don't", "don’t", "do not", "never", "always", "instead", "make sure", "from now on",
        "please don't", "please do not", "please always", "please never", "must not", "you must",
        "avoid", "prefer ", "only use", "use only", "remember",
    ],
    &[
        "nicht ", "nie ", "niemals", "immer ", "stattdessen", "bitte nicht", "benutze immer",
        "verwende immer", "ab jetzt", "achte darauf",
    ],
    &[
        "nunca", "siempre", "en lugar de", "en vez de", "no uses", "no hagas", "asegúrate",
        "a partir de ahora",
    ],
    &[
        "jamais", "toujours ", "au lieu", "ne fais pas", "n'utilise pas", "désormais", "assure-toi",
    ],
    &[
        "nunca", "sempre", "em vez de", "não use", "a partir de agora",
    ],
    &[
        "不要", "别", "永远不要", "总是", "始终", "应该用", "改用", "请用", "必须", "从现在开始",
        "记住",
    ],
    &["しないで", "必ず", "常に", "代わりに", "今後は"],
    &["не надо", "никогда", "всегда", "вместо"],
];

/// Phrases that mark an English or German sentence as a rule.
const WITHIN: [&str; 6] = [
    ", not ", " instead of ", " rather than ", " from now on", " statt ", " anstatt ",
];

/// The maximum length of an input in characters. Longer inputs are pasted plans or documents, whose
/// imperatives correct nothing.
const MAX_INPUT_CHARS: usize = 1_500;
const MAX_SENTENCE_CHARS: usize = 300;
const MAX_LESSONS: usize = 3;

/// Returns the sentences that are corrections or rules, at most three.
pub(crate) fn find_guidance(words: &str) -> Vec<(GuidanceKind, &str)> {
    if words.chars().nth(MAX_INPUT_CHARS).is_some() {
        return Vec::new();
    }
    let found = sentences(words).filter_map(|sentence| {
        let is_short = sentence.chars().nth(MAX_SENTENCE_CHARS).is_none();
        Some((classify_guidance(sentence).filter(|_| is_short)?, sentence))
    });
    found.take(MAX_LESSONS).collect()
}

fn classify_guidance(sentence: &str) -> Option<GuidanceKind> {
    let lower = sentence.to_lowercase();
    let lower = lower.trim_start_matches(|c: char| !c.is_alphanumeric());
    let begins = |lists: &[&[&str]]| {
        lists
            .iter()
            .any(|list| list.iter().any(|cue| lower.starts_with(cue)))
    };
    // Rules come first: the Spanish rule `no uses` begins like the English correction `no `.
    if begins(&RULES) {
        Some(GuidanceKind::Rule)
    } else if begins(&CORRECTIONS) {
        Some(GuidanceKind::Correction)
    } else {
        WITHIN
            .iter()
            .any(|cue| lower.contains(cue))
            .then_some(GuidanceKind::Rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn corrections_and_rules_are_detected_in_several_languages() {
        use GuidanceKind::{Correction, Rule};
        for (words, expected) in [
            ("No, that breaks the build.", Some(Correction)),
            ("Don't touch the tests.", Some(Rule)),
            ("Use bun instead of npm.", Some(Rule)),
            ("不要改测试。", Some(Rule)),
            ("不对，应该是三", Some(Correction)),
            ("Nein, das war anders gemeint.", Some(Correction)),
            ("Nunca uses eso.", Some(Rule)),
            ("Now add a button.", None),
            ("Note the new file.", None),
        ] {
            assert_eq!(
                find_guidance(words).first().map(|(lesson, _)| *lesson),
                expected,
                "{words}"
            );
        }
    }
}
