//! The settings of the server. The layers are, from lowest to highest: defaults, a TOML file, the environment, and
//! flags.
//!
//! Loading reports all errors at once, each with its line, variable or flag. Every value records its origin. The
//! common crates do not support this combination. `config`, `figment` and `confique` stop at the first invalid value,
//! or collect errors by source and without lines. This crate uses one table of settings and the spans of `toml`
//! instead.

mod auth;
mod checks;
mod claude;
mod config;
mod file;
mod gateway;
mod hooks;
mod http;
mod json_schema;
mod load;
mod mcp;
mod models;
mod otel;
mod otlp;
mod policy;
pub mod policy_fields;
mod postgres;
mod problem;
mod quotas;
mod render;
mod retention;
mod schema;
mod settings;
mod source;
mod suggest;
mod summarizer;
#[cfg(test)]
#[expect(
    clippy::needless_raw_string_hashes,
    reason = "as expect-test writes them"
)]
mod tests;
mod value;

pub use auth::{AuthConfig, JwtConfig, PlainText, TlsConfig};
pub use config::{
    AdminConfig, AuditConfig, BlobsConfig, Config, GrpcConfig, LogConfig, PolicyConfig,
    SessionsConfig, ShutdownConfig, StoreConfig,
};
pub use gateway::{
    GatewayConfig, ProviderCompaction, UpstreamConfig, UpstreamUrl, UpstreamsConfig,
};
pub use hooks::{EndpointConfig, EndpointName, EndpointUrl, HooksConfig};
pub use http::{HttpConfig, WebOrigins};
pub use load::{Flags, LoadedConfig, load};
pub use mcp::McpConfig;
pub use otlp::{CollectorUrl, OtlpConfig, OtlpProtocol, Ratio, ResourceAttributes, ServiceName};
pub use policy_fields::{FieldKind, PolicyField, policy_fields};
pub use postgres::{DatabaseUrl, PostgresConfig, SchemaName};
pub use problem::{ConfigErrors, ConfigProblem, SettingOrigin};
pub use schema::json_schema;
pub use source::{FixedSource, ProcessSource, Source};
pub use summarizer::{
    BaseUrl, ModelConfig, ModelName, ModelProvider, SummarizerConfig, VariableName,
};
pub use value::{LogFilter, LogFormat, Role};
