//! The row that lists show for a session. Every append writes it again, so its size is limited.

use bytes::Bytes;
use palimpsest_core::ids::SessionKey;
use palimpsest_core::session::SessionInfo;
use palimpsest_store::MAX_LIST_ROW_BYTES;
use palimpsest_store::encoding::{decode_list_row, encode_list_row};

/// Maximum length of each text in a shortened row, in characters and in bytes. Six such texts and the longest parent
/// name fit into one row.
const SHORT_CHARS: usize = 120;
const SHORT_BYTES: usize = 200;

/// Encodes a row. A row above the limit loses its attributes first, and then its texts are cut. The session itself
/// keeps all values.
pub(super) fn encode(about: &SessionInfo) -> Bytes {
    let row = encode_list_row(about);
    if row.len() <= MAX_LIST_ROW_BYTES {
        return row;
    }
    // The number of attributes is not limited here, so only a row without them is sure to fit after the cut.
    let without_attributes = SessionInfo {
        attributes: Vec::new(),
        ..about.clone()
    };
    let row = encode_list_row(&without_attributes);
    if row.len() <= MAX_LIST_ROW_BYTES {
        return row;
    }
    encode_list_row(&SessionInfo {
        title: short(&about.title),
        first_prompt: short(&about.first_prompt),
        project_path: short(&about.project_path),
        branch: short(&about.branch),
        hold: short(&about.hold),
        last_model: short(&about.last_model),
        ..without_attributes
    })
}

/// Returns the parent of a session, from its row.
pub(crate) fn parent_in_row(row: &[u8]) -> Option<SessionKey> {
    // A row that cannot be decoded is reported by lists.
    decode_list_row(row).ok()?.parent
}

fn short(text: &str) -> Box<str> {
    let end = text.char_indices().nth(SHORT_CHARS);
    let end = end.map_or(text.len(), |(at, _)| at);
    text[..text.floor_char_boundary(end.min(SHORT_BYTES))].into()
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::{ProjectId, SessionId, Timestamp};

    use super::*;

    /// Returns 40,000 characters from a code point on that do not compress.
    fn noise(first: u32) -> String {
        (0_u32..40_000)
            .map(|n| char::from_u32(first + (n.wrapping_mul(2_654_435_761) >> 19)).unwrap_or('x'))
            .collect()
    }

    #[test]
    fn a_session_row_stays_within_its_size_limit() {
        // Characters of three bytes in UTF-8, and of four.
        for first in [0x4E00, 0x2_0000] {
            let noise = noise(first);
            let longest = |letter: &str, max: usize| letter.repeat(max);
            let parent = format!(
                "projects/{}/sessions/{}",
                longest("p", ProjectId::MAX_LEN),
                longest("s", SessionId::MAX_LEN)
            );
            let about = SessionInfo {
                title: noise.as_str().into(),
                first_prompt: noise.as_str().into(),
                project_path: noise.as_str().into(),
                branch: noise.as_str().into(),
                hold: noise.as_str().into(),
                last_model: noise.as_str().into(),
                parent: Some(SessionKey::parse(&parent).unwrap()),
                attributes: vec![("a".into(), noise.as_str().into())],
                created: Timestamp::from_millis(i64::MAX),
                modified: Timestamp::from_millis(i64::MAX),
                user_messages: u32::MAX,
                assistant_messages: u32::MAX,
                reported_tokens: u64::MAX,
                ..SessionInfo::default()
            };
            let row = encode(&about);
            assert!(row.len() <= MAX_LIST_ROW_BYTES, "{}", row.len());
            let decoded = decode_list_row(&row).unwrap();
            assert_eq!(decoded.user_messages, u32::MAX);
            assert!(noise.starts_with(&*decoded.title) && decoded.title.len() > 150);
        }
    }
}
