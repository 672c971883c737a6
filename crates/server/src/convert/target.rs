//! Targets, prompt prefixes and their conversion.

use palimpsest_core::json::{self, JsonError, RawJson};
use palimpsest_core::message::Block;
use palimpsest_core::models::ModelTable;
use palimpsest_core::policy::WindowHint;
use palimpsest_core::view::{Provider, Target, TargetOverride};
use palimpsest_engine::turn::{PrefixPart, PromptPrefix};
use palimpsest_proto::context::v1;

use super::blocks_in::payload_error;
use super::scalars::unknown;
use super::{FieldError, WithFieldPath, saturate_tokens};

/// The maximum length of a model name in bytes. Etags and events contain the name.
pub const MAX_MODEL_BYTES: usize = 256;

/// Validates the target of a call, and looks up its model in the table of models.
pub fn target_override(
    target: Option<v1::Target>,
    models: &ModelTable,
) -> Result<TargetOverride, FieldError> {
    let Some(target) = target else {
        return Ok(TargetOverride::default());
    };
    let provider = match v1::Provider::try_from(target.provider) {
        Ok(v1::Provider::Unspecified) => None,
        Ok(v1::Provider::Anthropic) => Some(Provider::Anthropic),
        Ok(v1::Provider::Bedrock) => Some(Provider::Bedrock),
        Ok(v1::Provider::Openai) => Some(Provider::OpenAi),
        Ok(v1::Provider::OpenaiResponses) => Some(Provider::OpenAiResponses),
        Err(_) => return Err(unknown("target.provider")),
    };
    if target.model.len() > MAX_MODEL_BYTES {
        let what = format!("must have at most {MAX_MODEL_BYTES} bytes");
        return Err(FieldError::invalid("target.model", what));
    }
    // A value of 0 is an error, because no request fits into it.
    let size = |tokens: Option<u32>, field: &str| match tokens {
        Some(0) => Err(FieldError::invalid(field, "must be at least 1")),
        tokens => Ok(tokens.map(u64::from)),
    };
    let window = WindowHint {
        window_tokens: size(target.window_tokens, "target.window_tokens")?,
        max_output_tokens: size(target.max_output_tokens, "target.max_output_tokens")?,
        input_limit_tokens: size(target.input_limit_tokens, "target.input_limit_tokens")?,
    };
    let stated = TargetOverride {
        provider,
        format: None,
        model: (!target.model.is_empty()).then(|| target.model.into()),
        // A boolean of proto3 cannot be absent, so a target always decides about thinking.
        thinking: Some(target.thinking),
        system_messages: Some(target.system_messages),
        window: Some(window),
        known: None,
    };
    // A stated window replaces the whole entry of the table.
    Ok(match window.window_tokens {
        Some(_) => stated,
        None => stated.with_models(models),
    })
}

convert_enum! {
    fn export_provider(Provider) -> v1::Provider {
        Anthropic, OpenAi = Openai, Bedrock, OpenAiResponses = OpenaiResponses
    }
}

/// The options in the body of a model request that decide about its view.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyOptions {
    /// The model.
    pub model: Option<Box<str>>,
    /// True if the request enables extended thinking.
    pub has_thinking: bool,
    /// The maximum number of tokens of the response.
    pub max_output_tokens: Option<u64>,
}

/// Adds the options of a body that the target does not state.
#[must_use]
pub fn with_body_options(
    mut target: TargetOverride,
    body: Option<BodyOptions>,
    models: &ModelTable,
) -> TargetOverride {
    let Some(body) = body else {
        return target;
    };
    // A target of the caller always states thinking, so the body decides only in a call without a target.
    target.thinking.get_or_insert(body.has_thinking);
    let has_window = target
        .window
        .is_some_and(|window| window.window_tokens.is_some());
    if let Some(max_output_tokens) = body.max_output_tokens {
        let window = target.window.get_or_insert_default();
        window.max_output_tokens.get_or_insert(max_output_tokens);
    }
    // No request of a provider has a longer name.
    let is_name = |model: &str| !model.is_empty() && model.len() <= MAX_MODEL_BYTES;
    let Some(model) = body.model.filter(|model| is_name(model)) else {
        return target;
    };
    if target.model.is_some() {
        return target;
    }
    target.model = Some(model);
    // A stated window replaces the whole entry of the table here too.
    if has_window {
        return target;
    }
    target.with_models(models)
}

/// Converts a target.
pub fn export_target(target: &Target, window: WindowHint) -> v1::Target {
    v1::Target {
        provider: export_provider(target.provider).into(),
        model: target.model.to_string(),
        thinking: target.thinking,
        system_messages: target.system_messages,
        window_tokens: window.window_tokens.map(saturate_tokens),
        max_output_tokens: window.max_output_tokens.map(saturate_tokens),
        input_limit_tokens: window.input_limit_tokens.map(saturate_tokens),
    }
}

/// Validates the prompt prefix of a call. Returns `None` if it is not set.
pub fn prompt_prefix(prefix: Option<v1::PromptPrefix>) -> Result<Option<PromptPrefix>, FieldError> {
    prefix
        .map(|prefix| {
            let system = part(
                prefix.system_tokens,
                &prefix.system_json,
                "a string or an array of blocks",
                |raw| raw.starts_with(['"', '[']),
                |raw| Block::text(raw.as_str()),
            );
            let tools = part(
                prefix.tools_tokens,
                &prefix.tools_json,
                "an array of tool definitions",
                |raw| raw.starts_with('['),
                |json| Block::Opaque {
                    kind: "tools".into(),
                    json,
                },
            );
            Ok(PromptPrefix::new(
                system.under("prompt_prefix.system_json")?,
                tools.under("prompt_prefix.tools_json")?,
            ))
        })
        .transpose()
}

fn part(
    tokens: Option<u32>,
    bytes: &[u8],
    expected: &'static str,
    is_expected: impl Fn(&str) -> bool,
    block: impl Fn(RawJson) -> Block,
) -> Result<PrefixPart, FieldError> {
    // The JSON of a part with a stated size is not read, so it need not be valid.
    if let Some(tokens) = tokens {
        return Ok(PrefixPart::Tokens(tokens));
    }
    if bytes.is_empty() {
        return Ok(PrefixPart::Tokens(0));
    }
    let text = json::document(bytes).map_err(payload_error)?;
    let raw = RawJson::parse(&text).map_err(payload_error)?;
    if !is_expected(raw.as_str()) {
        return Err(payload_error(JsonError::Kind { expected }));
    }
    Ok(PrefixPart::Json(block(raw)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use palimpsest_core::policy::Policy;
    use palimpsest_core::session::LastServed;
    use palimpsest_core::tokens::PrefixTokens;
    use palimpsest_core::tokens::TokenCounter;

    use super::*;

    fn last() -> LastServed {
        LastServed {
            target: Target {
                provider: Provider::OpenAi,
                model: "m".into(),
                thinking: true,
                system_messages: false,
            },
            window: WindowHint {
                window_tokens: Some(5),
                max_output_tokens: None,
                input_limit_tokens: Some(9_000),
            },
            overhead_tokens: 0,
        }
    }

    fn target(given: Option<v1::Target>) -> Result<(Target, WindowHint), FieldError> {
        let call = target_override(given, &ModelTable::builtin())?;
        Ok(last().overridden(&call, &Policy::default()))
    }

    #[test]
    fn unset_target_fields_take_the_last_values() {
        let (same, window) = target(None).unwrap();
        assert_eq!((same, window), (last().target, last().window));
        let (partly, window) = target(Some(v1::Target::default())).unwrap();
        assert_eq!((&*partly.model, partly.thinking), ("m", false));
        assert_eq!(partly.provider, Provider::OpenAi);
        // The model is the last one, so its window is too.
        assert_eq!(window, last().window);
        let bedrock = v1::Target {
            provider: v1::Provider::Bedrock.into(),
            model: "n".into(),
            max_output_tokens: Some(7),
            ..v1::Target::default()
        };
        let (given, window) = target(Some(bedrock)).unwrap();
        assert_eq!((given.provider, &*given.model), (Provider::Bedrock, "n"));
        assert_eq!(window.max_output_tokens, Some(7));
        let out = export_target(&given, window);
        assert_eq!(target(Some(out)).unwrap(), (given, window));
    }

    #[test]
    fn the_window_of_a_stated_model_comes_from_the_table() {
        let of = |target: v1::Target, policy: &Policy| {
            let call = target_override(Some(target), &ModelTable::builtin()).unwrap();
            let (_, window) = last().overridden(&call, policy);
            (
                window.window_tokens,
                window.max_output_tokens,
                window.input_limit_tokens,
            )
        };
        let model = |model: &str| v1::Target {
            model: model.to_owned(),
            ..v1::Target::default()
        };
        let policy = Policy::default();
        let known = of(model("gpt-4o"), &policy);
        assert_eq!(known, (Some(128_000), Some(16_384), None));
        // `gpt-5` limits its input separately: 272,000 of its 400,000 tokens.
        let limited = of(model("gpt-5"), &policy);
        assert_eq!(limited, (Some(400_000), Some(128_000), Some(272_000)));
        assert_eq!(of(model("unknown"), &policy), (None, None, None));
        // Single values of the caller replace those of the table. A stated window replaces all of them.
        let mut partly = model("gpt-5");
        partly.max_output_tokens = Some(7);
        partly.input_limit_tokens = Some(8);
        assert_eq!(of(partly, &policy), (Some(400_000), Some(7), Some(8)));
        let mut stated = model("gpt-5");
        stated.window_tokens = Some(9);
        assert_eq!(of(stated, &policy), (Some(9), None, None));
        // So does a window of the policy.
        let mut policy = policy;
        policy.tokens.default_window_tokens = Some(200_000);
        assert_eq!(of(model("gpt-4o"), &policy), (None, None, None));
    }

    #[test]
    fn an_invalid_target_is_rejected_with_its_field() {
        let path = |set: fn(&mut v1::Target)| {
            let mut wrong = v1::Target::default();
            set(&mut wrong);
            target(Some(wrong)).unwrap_err().path
        };
        assert_eq!(path(|t| t.provider = 9), "target.provider");
        let longest = "m".repeat(MAX_MODEL_BYTES);
        let model = |model: String| v1::Target {
            model,
            ..v1::Target::default()
        };
        assert!(target(Some(model(longest.clone()))).is_ok());
        let error = target(Some(model(longest + "m"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "target.model must have at most 256 bytes"
        );
        assert_eq!(path(|t| t.window_tokens = Some(0)), "target.window_tokens");
        assert_eq!(
            path(|t| t.max_output_tokens = Some(0)),
            "target.max_output_tokens"
        );
        assert_eq!(
            path(|t| t.input_limit_tokens = Some(0)),
            "target.input_limit_tokens"
        );
    }

    #[test]
    fn a_prompt_prefix_has_a_stated_or_an_estimated_size() {
        // A stated size replaces the count, so the JSON of that part is not parsed.
        let given = v1::PromptPrefix {
            system_json: Bytes::from_static(b"not looked at"),
            system_tokens: Some(11),
            // 240 bytes of JSON, at 2.4 bytes per token.
            tools_json: Bytes::from(format!("[{:?}]", "x".repeat(236))),
            tools_tokens: None,
        };
        let prefix = prompt_prefix(Some(given)).unwrap().unwrap();
        let tokens = prefix.tokens(TokenCounter::BYTES);
        assert_eq!(
            tokens,
            PrefixTokens {
                system: 11,
                tools: 100
            }
        );
        assert_eq!(tokens.total(), 111);
        assert!(prompt_prefix(None).unwrap().is_none());
        let wrong = |system: &'static [u8], tools: &'static [u8]| {
            let prefix = v1::PromptPrefix {
                system_json: Bytes::from_static(system),
                tools_json: Bytes::from_static(tools),
                ..v1::PromptPrefix::default()
            };
            prompt_prefix(Some(prefix)).unwrap_err().to_string()
        };
        assert_eq!(
            wrong(b"{}", b""),
            "prompt_prefix.system_json must be a string or an array of blocks"
        );
        assert_eq!(
            wrong(b"", b"{}"),
            "prompt_prefix.tools_json must be an array of tool definitions"
        );
        assert!(wrong(b"[\xff]", b"").contains("UTF-8"));
    }
}
