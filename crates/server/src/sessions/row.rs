//! What lists show of a session, small enough to be written again with every append.

use bytes::Bytes;
use palimpsest_core::session::About;
use palimpsest_store::MAX_SUMMARY_BYTES;
use palimpsest_store::encoding::encode_about;

/// How much of each text remains when not everything fits.
const SHORT_CHARS: usize = 120;

/// Encodes a row. When it would be too large, first the attributes stay out of it, then texts are cut;
/// the session itself keeps everything.
pub(super) fn encode(about: &About) -> Bytes {
    let row = encode_about(about);
    if row.len() <= MAX_SUMMARY_BYTES {
        return row;
    }
    let without_attributes = About {
        attributes: Vec::new(),
        ..about.clone()
    };
    let row = encode_about(&without_attributes);
    if row.len() <= MAX_SUMMARY_BYTES {
        return row;
    }
    encode_about(&About {
        title: short(&about.title),
        first_prompt: short(&about.first_prompt),
        project_path: short(&about.project_path),
        branch: short(&about.branch),
        hold: short(&about.hold),
        last_model: short(&about.last_model),
        ..without_attributes
    })
}

fn short(text: &str) -> Box<str> {
    text.chars().take(SHORT_CHARS).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use palimpsest_store::encoding::decode_about;

    use super::*;

    #[test]
    fn a_row_is_always_small_enough() {
        // Letters that do not compress.
        let noise: String = (0_u32..40_000)
            .map(|n| char::from_u32(0x4E00 + (n.wrapping_mul(2_654_435_761) >> 19)).unwrap_or('x'))
            .collect();
        let about = About {
            title: noise.as_str().into(),
            first_prompt: noise.as_str().into(),
            project_path: noise.as_str().into(),
            branch: noise.as_str().into(),
            attributes: vec![("a".into(), noise.as_str().into())],
            user_messages: 7,
            ..About::default()
        };
        let row = encode(&about);
        assert!(row.len() <= MAX_SUMMARY_BYTES, "{}", row.len());
        assert_eq!(decode_about(&row).unwrap().user_messages, 7);
    }
}
