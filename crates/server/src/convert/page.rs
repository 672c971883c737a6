//! Page tokens: opaque, versioned, and bound to the request that they continue.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use palimpsest_core::ids::Revision;
use palimpsest_core::message::Digest;
use palimpsest_store::Position;

const VERSION: u8 = 1;
// The version, the digest of the request and the kind of the cursor.
const HEAD: usize = 1 + 16 + 1;

/// The start of the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageCursor {
    /// A position in a numbered list.
    Number(u64),
    /// A position in a list ordered by a number and a name.
    Named(i64, String),
    /// A position in a session's list, with the session's position when the first pages were read.
    Within(Position, u64),
    /// A position inside an entry of a session's list.
    Inside(Position, u64, EntryPosition),
}

/// A position inside a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPosition {
    /// The index of the block.
    pub block: u64,
    /// The offset in the block's text, in bytes.
    pub offset: u64,
}

/// The error for a malformed page token or one of another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("page_token is not a token of this request: every field but page_size must be as it was")]
pub struct InvalidPageToken;

/// Encodes a page token. `request` is the digest of all request fields that must not change between pages.
pub fn page_token_text(cursor: &PageCursor, request: Digest) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(request.as_bytes());
    match cursor {
        PageCursor::Number(number) => {
            bytes.push(0);
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        PageCursor::Named(number, name) => {
            bytes.push(1);
            bytes.extend_from_slice(&number.to_le_bytes());
            // The name is the last part, so it needs no length.
            bytes.extend_from_slice(name.as_bytes());
        }
        PageCursor::Within(position, number) => {
            bytes.push(2);
            put_position(&mut bytes, *number, *position);
        }
        PageCursor::Inside(position, number, inside) => {
            bytes.push(3);
            put_position(&mut bytes, *number, *position);
            for number in [inside.block, inside.offset] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

fn put_position(bytes: &mut Vec<u8>, number: u64, position: Position) {
    let revision = position.revision.get();
    for number in [number, position.incarnation, revision, position.token] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
}

/// Decodes a page token. An empty token selects the first page.
pub fn page_token(token: &str, request: Digest) -> Result<Option<PageCursor>, InvalidPageToken> {
    if token.is_empty() {
        return Ok(None);
    }
    let bytes = URL_SAFE_NO_PAD
        .decode(token)
        .map_err(|_| InvalidPageToken)?;
    let (head, rest) = bytes.split_at_checked(HEAD).ok_or(InvalidPageToken)?;
    let (number, name) = rest.split_first_chunk::<8>().ok_or(InvalidPageToken)?;
    // A token of another request would continue at a position that has no meaning there.
    if head[0] != VERSION || head[1..17] != request.as_bytes()[..] {
        return Err(InvalidPageToken);
    }
    match head[17] {
        0 if name.is_empty() => Ok(Some(PageCursor::Number(u64::from_le_bytes(*number)))),
        1 => {
            let name = std::str::from_utf8(name).map_err(|_| InvalidPageToken)?;
            let number = i64::from_le_bytes(*number);
            Ok(Some(PageCursor::Named(number, name.to_owned())))
        }
        kind @ (2 | 3) => {
            let number = u64::from_le_bytes(*number);
            let mut rest = name;
            let mut next = || {
                let (first, others) = rest.split_first_chunk::<8>().ok_or(InvalidPageToken)?;
                rest = others;
                Ok::<_, InvalidPageToken>(u64::from_le_bytes(*first))
            };
            let position = Position {
                incarnation: next()?,
                revision: Revision::new(next()?),
                token: next()?,
            };
            let cursor = if kind == 2 {
                PageCursor::Within(position, number)
            } else {
                let (block, offset) = (next()?, next()?);
                PageCursor::Inside(position, number, EntryPosition { block, offset })
            };
            if rest.is_empty() {
                Ok(Some(cursor))
            } else {
                Err(InvalidPageToken)
            }
        }
        _ => Err(InvalidPageToken),
    }
}

/// Returns the size of a page. 0 selects the default, and a larger value than `max` counts as `max`.
pub fn page_size(given: u32, default: u32, max: usize) -> usize {
    let size = if given == 0 { default } else { given };
    (size as usize).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_is_valid_for_its_request_only() {
        let (mine, other) = (Digest::of_bytes(b"a"), Digest::of_bytes(b"b"));
        let position = Position {
            incarnation: 3,
            revision: Revision::new(9),
            token: u64::MAX,
        };
        let inside = EntryPosition {
            block: 2,
            offset: 70_000,
        };
        for cursor in [
            PageCursor::Number(u64::MAX),
            PageCursor::Named(-5, "projects/p/sessions/ä".into()),
            PageCursor::Named(0, String::new()),
            PageCursor::Within(position, 7),
            PageCursor::Inside(position, 7, inside),
        ] {
            let text = page_token_text(&cursor, mine);
            assert_eq!(page_token(&text, mine), Ok(Some(cursor)));
            assert_eq!(page_token(&text, other), Err(InvalidPageToken));
            assert_eq!(page_token(&text[1..], mine), Err(InvalidPageToken));
            assert_eq!(page_token(&text[..24], mine), Err(InvalidPageToken));
        }
        assert_eq!(page_token("", mine), Ok(None));
        assert_eq!(page_token("!", mine), Err(InvalidPageToken));
    }

    #[test]
    fn the_page_size_has_a_default_and_a_maximum() {
        for (given, max, size) in [
            (0, 1_000, 50),
            (0, 5, 5),
            (7, 1_000, 7),
            (1_001, 1_000, 1_000),
        ] {
            assert_eq!(page_size(given, 50, max), size);
        }
    }
}
