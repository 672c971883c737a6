//! The form of a conversation that providers accept: user first, alternating roles, no blank texts.

use crate::request::{ChatMessage, Role};
use crate::rounds::TRUNCATED;

/// Merges adjacent messages of one role; each text stays a separate block. Inserts a note if the
/// first message is from the assistant. The instruction is not included.
pub(crate) fn alternating(turns: &[ChatMessage]) -> Vec<(Role, Vec<&str>)> {
    let mut out: Vec<(Role, Vec<&str>)> = Vec::new();
    for turn in turns.iter().filter(|turn| !turn.text.trim().is_empty()) {
        // Providers reject a conversation that starts with an assistant message.
        if out.is_empty() && turn.role == Role::Assistant {
            out.push((Role::User, vec![TRUNCATED]));
        }
        match out.last_mut() {
            Some((role, texts)) if *role == turn.role => texts.push(&turn.text),
            _ => out.push((turn.role, vec![&turn.text])),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::alternating;
    use crate::request::{ChatMessage, Role};
    use crate::rounds::TRUNCATED;

    #[test]
    fn turns_are_merged_and_start_with_the_user() {
        let turns = [
            ChatMessage::user("  \n"),
            ChatMessage::assistant("a"),
            ChatMessage::assistant("b"),
            ChatMessage::user("c"),
            ChatMessage::user(""),
            ChatMessage::user("d"),
        ];
        let expected = [
            (Role::User, vec![TRUNCATED]),
            (Role::Assistant, vec!["a", "b"]),
            (Role::User, vec!["c", "d"]),
        ];
        assert_eq!(alternating(&turns), expected);
        assert!(alternating(&[ChatMessage::user(" ")]).is_empty());
    }
}
