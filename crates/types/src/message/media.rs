//! Images and documents, and the problems for which providers reject them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::json::{JsonError, ObjectFields, RawJson, UnknownFields};

/// The maximum length of an image's base64 text. Providers reject a longer one.
const MAX_IMAGE_BASE64_BYTES: usize = 5 * 1024 * 1024;
/// The maximum edge of an image in pixels. Providers reject a longer one.
const MAX_IMAGE_EDGE_PX: usize = 8_000;
/// The maximum length of a document's base64 text. It equals the providers' limit for a request.
const MAX_DOCUMENT_BASE64_BYTES: usize = 32 * 1024 * 1024;
/// The length of the prefix in which image dimensions are searched. A JPEG may have 64 KiB segments
/// before them.
const HEADER_BASE64_BYTES: usize = 512 * 1024;

/// The image types that both providers accept.
const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// An image or a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Media {
    /// The kind of media.
    pub kind: MediaKind,
    /// The source of the content.
    pub source: MediaSource,
    /// Fields that the service does not interpret.
    pub extra: UnknownFields,
}

/// The kind of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaKind {
    /// An image.
    Image,
    /// A document.
    Document,
}

/// The source of an image or a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaSource {
    /// Content inside the message.
    Base64 {
        /// The MIME type.
        media_type: Box<str>,
        /// The content, encoded in base64.
        data: Box<str>,
    },
    /// A URL.
    Url(Box<str>),
    /// Another source, such as a provider's file id, kept byte for byte.
    Other(RawJson),
}

/// The reason why a provider rejects an image or a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediaProblem {
    /// The content has too many bytes.
    TooManyBytes,
    /// An edge has too many pixels.
    TooManyPixels,
    /// The type is not supported, the content is not base64, or the URL is neither `http` nor
    /// `https`.
    BadType,
    /// The request has too many images.
    TooMany,
}

impl MediaSource {
    /// Reads a source in Anthropic's format. Returns `None` for a source of another kind.
    pub fn of(fields: &mut ObjectFields<'_>) -> Result<Option<Self>, JsonError> {
        Ok(match &*fields.require_string("type")? {
            "base64" => Some(Self::Base64 {
                media_type: fields.require_string("media_type")?,
                data: fields.require_string("data")?,
            }),
            "url" => Some(Self::Url(fields.require_string("url")?)),
            _ => None,
        })
    }
}

/// Reads a source that was stored unmodified because it has unknown fields. Returns `None` for an
/// unknown kind.
fn known(json: &RawJson) -> Option<MediaSource> {
    let mut fields = ObjectFields::read_str(json.as_str()).ok()?;
    MediaSource::of(&mut fields).ok()?
}

impl Media {
    /// Returns the reason why a provider would reject this content, independent of the rest of the
    /// request.
    pub fn problem(&self) -> Option<MediaProblem> {
        self.problem_of(&self.source)
    }

    fn problem_of(&self, source: &MediaSource) -> Option<MediaProblem> {
        let (media_type, data) = match source {
            MediaSource::Base64 { media_type, data } => (media_type, data),
            MediaSource::Url(url) => {
                let is_fetched = ["https://", "http://"].iter().any(|it| url.starts_with(it));
                return (!is_fetched).then_some(MediaProblem::BadType);
            }
            MediaSource::Other(json) => return self.problem_of(&known(json)?),
        };
        match self.kind {
            MediaKind::Document if data.len() > MAX_DOCUMENT_BASE64_BYTES => {
                Some(MediaProblem::TooManyBytes)
            }
            MediaKind::Document => {
                let is_file = &**media_type == "application/pdf";
                (is_file && !is_base64(data)).then_some(MediaProblem::BadType)
            }
            MediaKind::Image if !IMAGE_TYPES.contains(&&**media_type) => {
                Some(MediaProblem::BadType)
            }
            MediaKind::Image if data.len() > MAX_IMAGE_BASE64_BYTES => {
                Some(MediaProblem::TooManyBytes)
            }
            MediaKind::Image => image_problem(data),
        }
    }
}

fn image_problem(data: &str) -> Option<MediaProblem> {
    if !is_base64(data) {
        return Some(MediaProblem::BadType);
    }
    // The length limit is a multiple of four, so the prefix is valid base64.
    let head = data.len().min(HEADER_BASE64_BYTES);
    let bytes = data.get(..head).map(|head| STANDARD.decode(head))?.ok()?;
    // Unreadable dimensions are no reason to reject: the provider decides.
    let size = imagesize::blob_size(&bytes).ok()?;
    (size.width.max(size.height) > MAX_IMAGE_EDGE_PX).then_some(MediaProblem::TooManyPixels)
}

/// Returns true if the text is valid base64. Decodes only the last four characters.
fn is_base64(data: &str) -> bool {
    let Some((body, end)) = data.as_bytes().split_last_chunk::<4>() else {
        return false;
    };
    let is_digit = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
    // Only the last four characters can contain padding, so the others need no decoding.
    body.len().is_multiple_of(4) && body.iter().all(is_digit) && STANDARD.decode(end).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> Media {
        let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
        bytes.extend_from_slice(&width.to_be_bytes());
        bytes.extend_from_slice(&height.to_be_bytes());
        bytes.extend_from_slice(&[8, 6, 0, 0, 0, 0, 0, 0, 0]);
        image("image/png", &STANDARD.encode(bytes))
    }

    fn image(media_type: &str, data: &str) -> Media {
        Media {
            kind: MediaKind::Image,
            source: MediaSource::Base64 {
                media_type: media_type.into(),
                data: data.into(),
            },
            extra: UnknownFields::default(),
        }
    }

    #[test]
    fn media_that_a_provider_rejects_is_detected() {
        // Each limit is tested at its boundary.
        assert_eq!(png(8_000, 10).problem(), None);
        assert_eq!(png(8_001, 10).problem(), Some(MediaProblem::TooManyPixels));
        assert_eq!(png(10, 9_000).problem(), Some(MediaProblem::TooManyPixels));
        assert_eq!(
            image("image/tiff", "AAAA").problem(),
            Some(MediaProblem::BadType)
        );
        for bad in [
            "not base64!", "", "iVBORw0KGgo=o=", "iVBORw0KGgo", "iVBO=w0KGgo=",
        ] {
            let problem = image("image/png", bad).problem();
            assert_eq!(problem, Some(MediaProblem::BadType), "{bad}");
        }
        let mut elsewhere = png(1, 1);
        elsewhere.source = MediaSource::Url("file:///etc/passwd".into());
        assert_eq!(elsewhere.problem(), Some(MediaProblem::BadType));
        elsewhere.source = MediaSource::Url("https://example.com/a.png".into());
        assert_eq!(elsewhere.problem(), None);
        // The length is a multiple of four, so only the line break makes the text invalid.
        let long = format!("{}\n{}", "A".repeat(40_000), "A".repeat(39_999));
        assert_eq!(
            image("image/png", &long).problem(),
            Some(MediaProblem::BadType)
        );
        assert_eq!(
            image("image/png", &"A".repeat(MAX_IMAGE_BASE64_BYTES + 4)).problem(),
            Some(MediaProblem::TooManyBytes)
        );
    }
}
