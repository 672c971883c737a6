//! The etag of the API: the etag of the domain with the form and the target of the view. The view can be streamed
//! by its etag alone.

use palimpsest_core::view::{Etag, Provider, Target};

use crate::convert::MessageForm;

const FORM: usize = 0;
const PROVIDER: usize = 1;
/// The bits of thinking and of system messages.
const OPTIONS: usize = 2;
const CORE_LEN: usize = 3;
const HEADER: usize = 4;

/// The decoded content of an etag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ViewName {
    pub(super) etag: Etag,
    pub(super) form: MessageForm,
    pub(super) target: Target,
}

pub(super) fn write(etag: Etag, form: MessageForm, target: &Target) -> Vec<u8> {
    let core = etag.to_bytes();
    let mut bytes = vec![0; HEADER];
    bytes[FORM] = u8::from(form == MessageForm::Typed);
    bytes[PROVIDER] = match target.provider {
        Provider::Anthropic => 0,
        Provider::OpenAi => 1,
        Provider::Bedrock => 2,
        Provider::OpenAiResponses => 3,
    };
    bytes[OPTIONS] = u8::from(target.thinking) | u8::from(target.system_messages) << 1;
    // The etag of the domain is far shorter than 256 bytes, so the default is never used.
    bytes[CORE_LEN] = u8::try_from(core.len()).unwrap_or(0);
    bytes.extend_from_slice(&core);
    // The limit of `target.model` bounds the length of the etag.
    bytes.extend_from_slice(target.model.as_bytes());
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
        3 => Provider::OpenAiResponses,
        _ => return None,
    };
    // Two bits are defined. Other bits are those of another version, whose etag is unknown here.
    let options = header[OPTIONS];
    if options > 3 {
        return None;
    }
    let target = Target {
        provider,
        model: std::str::from_utf8(model).ok()?.into(),
        thinking: options & 1 != 0,
        system_messages: options & 2 != 0,
    };
    Some(ViewName { etag, form, target })
}

#[cfg(test)]
mod tests {
    use palimpsest_core::ids::Epoch;
    use palimpsest_core::message::Digest;
    use proptest::prelude::*;

    use super::*;
    use crate::convert::MAX_MODEL_BYTES;

    /// The maximum length of an etag in bytes, as the contract promises.
    const MAX_BYTES: usize = 320;

    fn target(model: &str, (thinking, system_messages): (bool, bool), openai: bool) -> Target {
        Target {
            provider: if openai {
                Provider::OpenAi
            } else {
                Provider::Anthropic
            },
            model: model.into(),
            thinking,
            system_messages,
        }
    }

    proptest! {
        #[test]
        fn etags_survive_a_round_trip_and_noise_is_accepted(
            model in "[a-z0-9:./-]{0,256}", options: (bool, bool), openai: bool, noise: Vec<u8>,
        ) {
            let target = target(&model, options, openai);
            let digest = Digest::of_bytes(&noise);
            let etag = Etag::new(Epoch::new(3), 7, 5, digest, &target);
            prop_assert!(target.model.len() <= MAX_MODEL_BYTES);
            let bytes = write(etag, MessageForm::Json, &target);
            prop_assert!(bytes.len() <= MAX_BYTES);
            let named = read(&bytes).unwrap();
            prop_assert_eq!(named.etag, etag);
            prop_assert_eq!(named.target, target);
            let _ = read(&noise);
        }
    }
}
