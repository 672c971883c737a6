//! Detection of replies in which a model refuses to write.

/// The beginnings of refusals in lower case. One entry per language and phrase.
const BEGINNINGS: [&str; 40] = [
    "i can't",
    "i can’t",
    "i cannot",
    "i can not",
    "i am unable",
    "i'm unable",
    "i’m unable",
    "i am not able",
    "i'm not able",
    "i’m not able",
    "i won't",
    "i won’t",
    "i will not",
    "i must decline",
    "i have to decline",
    "i apologize",
    "i apologise",
    "i'm sorry",
    "i’m sorry",
    "i am sorry",
    "sorry, ",
    "unfortunately, i",
    "as an ai",
    "as a language model",
    "i don't have access",
    "i do not have access",
    "there is no conversation",
    "there's no conversation",
    "ich kann nicht",
    "ich kann das nicht",
    "es tut mir leid",
    "tut mir leid",
    "lo siento",
    "no puedo",
    "désolé",
    "je ne peux pas",
    "抱歉",
    "对不起",
    "我无法",
    "申し訳",
];

/// The maximum length of a refusal in characters. A longer text is content that begins with an
/// apology.
const MAX_CHARS: usize = 1_200;

/// Returns true if a text is a refusal only.
pub(crate) fn is_refusal(text: &str) -> bool {
    // Models format refusals too, as in `**I cannot** summarise this`.
    let text = text.trim_start_matches(|c: char| !c.is_alphanumeric());
    if text.chars().nth(MAX_CHARS).is_some() {
        return false;
    }
    let begin: String = text.chars().take(40).collect::<String>().to_lowercase();
    BEGINNINGS.iter().any(|words| begin.starts_with(words))
}

#[cfg(test)]
mod tests {
    use super::is_refusal;

    #[test]
    fn refusals_are_recognized() {
        for text in [
            "I'm sorry, but I can't help with that.",
            "  **I cannot** summarise this conversation.",
            "Es tut mir leid, das geht nicht.",
            "抱歉，我无法总结。",
        ] {
            assert!(is_refusal(text), "{text}");
        }
        assert!(!is_refusal("The user said: I can't log in."));
        assert!(!is_refusal(&format!(
            "I'm sorry it took long. {}",
            "Work. ".repeat(300)
        )));
    }
}
