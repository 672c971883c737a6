//! The layer that answers requests for pages.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use palimpsest_http::{AllowedOrigins, ApiBody};
use tonic::Status;
use tonic::body::Body;
use tower::util::BoxCloneSyncService;
use tower::{Layer, Service, ServiceExt as _};

use crate::api::{Api, GrpcService};
use crate::error::PageError;
use crate::pages::{self, Query, Viewer};
use crate::routes::{self, ROOT, Route, SessionPage};
use crate::{access, assets, changes, response};

/// The maximum size of a submitted form: 1 MiB.
const MAX_FORM: usize = 1024 * 1024;

/// The inspector, as a layer around the HTTP API.
#[derive(Debug, Clone)]
pub struct Inspector(Option<Settings>);

#[derive(Debug, Clone)]
struct Settings {
    origins: AllowedOrigins,
    /// True if calls need no credential.
    is_open: bool,
    /// True if the port has TLS.
    has_tls: bool,
}

impl Inspector {
    /// Creates the layer. `is_open` is true if calls need no credential, and `has_tls` if the port has TLS.
    pub fn new(is_open: bool, has_tls: bool) -> Self {
        Self(Some(Settings {
            // Only its own pages use the inspector.
            origins: AllowedOrigins::default(),
            is_open,
            has_tls,
        }))
    }

    /// Creates a layer without pages.
    pub const fn off() -> Self {
        Self(None)
    }
}

impl<S> Layer<S> for Inspector {
    type Service = InspectorService<S>;

    fn layer(&self, inner: S) -> InspectorService<S> {
        InspectorService {
            inner,
            settings: self.0.clone(),
        }
    }
}

/// The inspector around the HTTP API.
#[derive(Debug, Clone)]
pub struct InspectorService<S> {
    inner: S,
    settings: Option<Settings>,
}

type PageFuture<B> = Pin<Box<dyn Future<Output = Result<Response<ApiBody<B>>, Infallible>> + Send>>;

impl<S, B> Service<Request<Body>> for InspectorService<S>
where
    S: Service<Request<Body>, Response = Response<ApiBody<B>>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes, Error = Status> + Unpin + Send + 'static,
{
    type Response = Response<ApiBody<B>>;
    type Error = Infallible;
    type Future = futures::future::Either<S::Future, PageFuture<B>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let settings = self
            .settings
            .as_ref()
            .filter(|_| routes::is_own(request.uri().path()));
        let Some(settings) = settings.cloned() else {
            return futures::future::Either::Left(self.inner.call(request));
        };
        let service = self.inner.clone();
        let service =
            service.map_response(|response: Response<ApiBody<B>>| response.map(Body::new));
        let service: GrpcService = BoxCloneSyncService::new(service);
        futures::future::Either::Right(Box::pin(async move {
            let response = answer(&settings, service, request).await;
            Ok(response.map(ApiBody::boxed))
        }))
    }
}

/// Answers a request. Every failure is a page that says what to do.
async fn answer(
    settings: &Settings,
    service: GrpcService,
    request: Request<Body>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let credential = access::credential(&head.headers);
    let viewer = Viewer {
        is_signed_in: credential.is_some() && !settings.is_open,
    };
    let here = head
        .uri
        .path_and_query()
        .map_or(ROOT, |uri| uri.as_str())
        .to_owned();
    if !settings
        .origins
        .permits(&head.headers, &head.uri, settings.is_open)
    {
        return pages::failed(&PageError::ForeignOrigin, &here, viewer);
    }
    let Some(route) = routes::find(head.uri.path()) else {
        return pages::failed(&PageError::NoPage, &here, viewer);
    };
    let form = match read_form(&head.method, body).await {
        Ok(form) => form,
        Err(error) => return pages::failed(&error, &here, viewer),
    };
    let call = Call {
        api: Api::new(service, head.extensions, credential.as_ref()),
        query: Query::read(head.uri.query().unwrap_or_default()),
        form,
        viewer,
        is_secure: settings.has_tls || is_forwarded_https(&head.headers),
    };
    match call.answer(route).await {
        Ok(response) => response,
        Err(error) => pages::failed(&error, &here, viewer),
    }
}

fn is_forwarded_https(headers: &http::HeaderMap) -> bool {
    let proto = headers.get("x-forwarded-proto").map(HeaderValue::as_bytes);
    proto == Some(b"https")
}

/// Reads a submitted form. `None` for a request that only reads.
async fn read_form(method: &Method, body: Body) -> Result<Option<Query>, PageError> {
    match *method {
        Method::GET | Method::HEAD => Ok(None),
        Method::POST => {
            if body.size_hint().lower() > MAX_FORM as u64 {
                return Err(PageError::Input("The form is larger than 1 MiB."));
            }
            let whole = Limited::new(body, MAX_FORM).collect().await;
            let whole =
                whole.map_err(|_| PageError::Input("The form is cut off or larger than 1 MiB."))?;
            let text = String::from_utf8(whole.to_bytes().to_vec());
            let text = text.map_err(|_| PageError::Input("The form is not valid UTF-8."))?;
            Ok(Some(Query::read(&text)))
        }
        _ => Err(PageError::Input(
            "The inspector takes GET and POST requests only.",
        )),
    }
}

/// One request for a page.
struct Call {
    api: Api,
    query: Query,
    /// The submitted form.
    form: Option<Query>,
    viewer: Viewer,
    is_secure: bool,
}

impl Call {
    async fn answer(&self, route: Route) -> Result<Response<Body>, PageError> {
        let (api, query, viewer) = (&self.api, &self.query, self.viewer);
        let page = match (route, &self.form) {
            (Route::Style, None) => return Ok(assets::style()),
            (Route::Script, None) => return Ok(assets::script()),
            (Route::Icon, None) => return Ok(assets::icon()),
            (Route::SignIn, Some(form)) => return self.sign_in(form),
            (Route::SignOut, Some(_)) => {
                let cookie = access::remove_cookie(self.is_secure);
                return Ok(response::with_cookie(response::redirect(ROOT), cookie));
            }
            (Route::SignIn, None) => pages::sign_in::page(ROOT, None),
            (Route::Projects, None) => pages::projects::page(api, viewer).await?,
            (Route::Sessions(project), None) => {
                pages::sessions::page(api, &project, query, viewer).await?
            }
            (Route::Session(name, SessionPage::Changes), None) => {
                return changes::stream(api, &name).await;
            }
            (Route::Session(name, page), None) => match page {
                SessionPage::Overview => pages::session::page(api, &name, query, viewer).await?,
                SessionPage::View => pages::view::page(api, &name, query, viewer).await?,
                SessionPage::Difference => {
                    pages::difference::page(api, &name, query, viewer).await?
                }
                SessionPage::Transcript => {
                    pages::transcript::page(api, &name, query, viewer).await?
                }
                SessionPage::Search => pages::search::page(api, &name, query, viewer).await?,
                SessionPage::Memory => pages::memory::page(api, &name, viewer).await?,
                SessionPage::Undo => pages::undo::page(api, &name, query, viewer).await?,
                SessionPage::Changes => return Err(PageError::NoPage),
            },
            (Route::Session(name, SessionPage::Undo), Some(form)) => {
                let path = pages::undo::undo(api, &name, form).await?;
                return Ok(response::redirect(&path));
            }
            (_, Some(_)) => return Err(PageError::Input("This page takes no form.")),
            (Route::SignOut, None) => return Ok(response::redirect(ROOT)),
        };
        Ok(response::page(StatusCode::OK, page))
    }

    /// Stores a key in the browser, and returns to the page that needed it.
    fn sign_in(&self, form: &Query) -> Result<Response<Body>, PageError> {
        let key = form.get("key").unwrap_or_default().trim();
        let next = form.get("next").filter(|next| is_own_page(next));
        let cookie = access::set_cookie(key, self.is_secure);
        if cookie.is_none() {
            let page = pages::sign_in::page(next.unwrap_or(ROOT), Some("This text is no API key."));
            return Ok(response::page(StatusCode::BAD_REQUEST, page));
        }
        Ok(response::with_cookie(
            response::redirect(next.unwrap_or(ROOT)),
            cookie,
        ))
    }
}

/// Returns true if a path leads to a page of the inspector.
fn is_own_page(path: &str) -> bool {
    let plain = path.split(['?', '#']).next().unwrap_or_default();
    routes::find(plain).is_some() && path.bytes().all(|byte| byte.is_ascii_graphic())
}
