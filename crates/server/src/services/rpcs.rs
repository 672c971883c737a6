//! The macro that writes the methods of a gRPC service.

/// Implements a service of the contract. Each line is an rpc: its method, request, response and handler.
///
/// - `change`: the handler runs to its end, even if the caller disconnects. A change is never interrupted halfway.
/// - `read`: the handler ends with the call, because it has no effect that must be completed.
/// - `stream`: a read whose handler returns a stream.
macro_rules! rpcs {
    (impl $service:ident for $handlers:ident {
        $(change $change:ident($change_in:ident) -> $change_out:ident = $change_handler:path;)*
        $(read $read:ident($read_in:ident) -> $read_out:ident = $read_handler:path;)*
        $(stream $stream:ident($stream_in:ident) -> $stream_out:ident as $stream_type:ident = $stream_handler:path;)*
    }) => {
        #[async_trait]
        impl $service for $handlers {
            $(
                async fn $change(
                    &self,
                    request: Request<v1::$change_in>,
                ) -> Result<Response<v1::$change_out>, Status> {
                    let (service, request) = (self.0.clone(), self.0.admit_call(request)?);
                    // Futures of changes contain commands and policies, which are too large for the stack.
                    let change = async move { Box::pin($change_handler(&service, request)).await };
                    reply(self.0.mutations.uncancelled(change).await)
                }
            )*
            $(
                async fn $read(
                    &self,
                    request: Request<v1::$read_in>,
                ) -> Result<Response<v1::$read_out>, Status> {
                    reply($read_handler(&self.0, self.0.admit_call(request)?).await)
                }
            )*
            $(
                type $stream_type = ReplyStream<v1::$stream_out>;

                async fn $stream(
                    &self,
                    request: Request<v1::$stream_in>,
                ) -> Result<Response<Self::$stream_type>, Status> {
                    reply($stream_handler(&self.0, self.0.admit_call(request)?).await)
                }
            )*
        }
    };
}

pub(super) use rpcs;
