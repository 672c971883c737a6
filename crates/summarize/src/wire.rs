//! A conversation as providers take it: the user first, roles in turn, nothing blank.

use crate::request::{ChatMessage, Role};
use crate::rounds::TRUNCATED;

/// Neighbours of one role together, each text a block of its own. When the assistant comes first, a note
/// stands before it; the instruction is not in it.
pub(crate) fn alternating(turns: &[ChatMessage]) -> Vec<(Role, Vec<&str>)> {
    let mut out: Vec<(Role, Vec<&str>)> = Vec::new();
    for turn in turns.iter().filter(|turn| !turn.text.trim().is_empty()) {
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
    fn merged_and_the_user_first() {
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
