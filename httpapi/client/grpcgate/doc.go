// Package grpcgate limits the calls to a gRPC server with a [client.Gate]. It is a separate package
// so that users of the gate with HTTP servers don't depend on gRPC.
//
//	limits := func(ctx context.Context, method string, request any) []client.Check { ... }
//	grpc.NewServer(
//		grpc.ChainUnaryInterceptor(grpcgate.Unary(gate, limits)),
//		grpc.ChainStreamInterceptor(grpcgate.Stream(gate, limits)))
//
// A call that the gate lets pass goes to its handler. Any other ends with the status that
// corresponds to the gate's HTTP status:
//
//   - RESOURCE_EXHAUSTED if a limit refuses it, or if the service is overloaded;
//   - INTERNAL if the service refuses the gate's request;
//   - UNAVAILABLE if there is no decision and the gate fails closed.
//
// If waiting helps, the status has a google.rpc.RetryInfo with the delay. The header metadata of
// every call with a decision, refused or not, has ratelimit-policy and ratelimit, as in
// draft-ietf-httpapi-ratelimit-headers-11, and retry-after where there is a RetryInfo.
//
// A stream is one call: it is counted when it is opened, and its messages are not.
package grpcgate
