//! The etag of the API: the etag of the domain with the form and the target of the view. The view can be streamed
//! by its etag alone.

use palimpsest_core::view::{Etag, Provider, Target};

use crate::convert::MessageForm;

/// The maximum length of an etag in bytes, as the contract promises.
const MAX_BYTES: usize = 128;
const FORM: usize = 0;
const PROVIDER: usize = 1;
const THINKING: usize = 2;
const CORE_LEN: usize = 3;
const HEADER: usize = 4;

/// The decoded content of an etag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ViewName {
    pub(super) etag: Etag,
    pub(super) form: MessageForm,
    /// The target of the view. `None` if the model name was too long for the etag.
    pub(super) target: Option<Target>,
}

pub(super) fn write(etag: Etag, form: MessageForm, target: &Target) -> Vec<u8> {
    let core = etag.to_bytes();
    let mut bytes = vec![0; HEADER];
    bytes[FORM] = u8::from(form == MessageForm::Typed);
    bytes[PROVIDER] = match target.provider {
        Provider::Anthropic => 0,
        Provider::OpenAi => 1,
        Provider::Bedrock => 2,
    };
    bytes[THINKING] = u8::from(target.thinking);
    bytes[CORE_LEN] = u8::try_from(core.len()).unwrap_or(0);
    bytes.extend_from_slice(&core);
    // The contract limits the length. An etag without the model cannot be used for `StreamContext`.
    if bytes.len() + target.model.len() <= MAX_BYTES {
        bytes.extend_from_slice(target.model.as_bytes());
    } else {
        // The bit marks an etag without a model.
        bytes[THINKING] |= 2;
    }
    bytes
}

/// Decodes an etag. Bytes that are not an etag yield `None`, which callers treat as an unknown etag.
pub(super) fn read(bytes: &[u8]) -> Option<ViewName> {
    let (header, rest) = bytes.split_at_checked(HEADER)?;
    let (core, model) = rest.split_at_checked(header[CORE_LEN].into())?;
    let etag = Etag::from_bytes(core)?;
    let form = match header[FORM] {
        0 => MessageForm::Json,
        1 => MessageForm::Typed,
        _ => return None,
    };
    let provider = match header[PROVIDER] {
        0 => Provider::Anthropic,
        1 => Provider::OpenAi,
        2 => Provider::Bedrock,
        _ => return None,
    };
    let target = match header[THINKING] {
        thinking @ (0 | 1) => Some(Target {
            provider,
            model: std::str::from_utf8(model).ok()?.into(),
            thinking: thinking == 1,
        }),
        // The bit 2 marks an etag whose target is not stored.
        2 | 3 => None,
        _ => return None,
    };
    Some(ViewName { etag, form, target })
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::Epoch;
    use palimpsest_core::message::Digest;
    use proptest::prelude::*;

    use super::*;

    fn target(model: &str, thinking: bool, openai: bool) -> Target {
        Target {
            provider: if openai {
                Provider::OpenAi
            } else {
                Provider::Anthropic
            },
            model: model.into(),
            thinking,
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_and_what_is_not_is_unknown(
            model in "\\PC{0,60}", thinking: bool, openai: bool, noise: Vec<u8>,
        ) {
            let target = target(&model, thinking, openai);
            let digest = Digest::of_bytes(&noise);
            let etag = Etag::new(Epoch::new(3), 7, 5, digest, &target);
            let bytes = write(etag, MessageForm::Json, &target);
            prop_assert!(bytes.len() <= MAX_BYTES);
            let named = read(&bytes).unwrap();
            prop_assert_eq!(named.etag, etag);
            if let Some(read) = named.target {
                prop_assert_eq!(read, target);
            } else {
                prop_assert!(model.len() > 60);
            }
            let _ = read(&noise);
        }
    }
}
