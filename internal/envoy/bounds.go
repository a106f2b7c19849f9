package envoy

import (
	"context"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// patience is how long a client may take to send a request, and how long to read its answer.
func (s *Server) patience() time.Duration { return 2 * s.opts.RequestTimeout }

// streamingMethods returns the full names of the streaming methods.
func streamingMethods(services map[string]grpc.ServiceInfo) map[string]bool {
	names := map[string]bool{}
	for service, info := range services {
		for _, m := range info.Methods {
			if m.IsClientStream || m.IsServerStream {
				names["/"+service+"/"+m.Name] = true
			}
		}
	}
	return names
}

// admit admits a request whose headers have arrived, if there is memory for it: in total, and for
// its address. A request has RequestTimeout to arrive and as much again to be executed; without
// that bound, one that never arrives completely would keep its memory. Long-lived streams draw on a
// separate account. admit must not wait: the library holds a lock of the connection.
func (s *Server) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	from, _ := peer.FromContext(ctx) // it always has one
	st := from.Addr.(clientAddr).conn.arriving
	if st == nil {
		s.counters.failed.Add(1)
		return nil, s.refuseForMemory()
	}
	st.headers = metadataBytes(info.Header)
	isStream := s.isStream[info.FullMethodName]
	if !st.grow(st.headers, 0) ||
		isStream && !st.reserve(streams, stayBytes, nil, time.Time{}) {
		s.counters.failed.Add(1)
		return nil, s.refuseForMemory()
	}
	ctx = context.WithValue(ctx, streamKey{}, st)
	var cancel context.CancelFunc
	if isStream {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, s.patience())
	}
	st.setCancel(cancel)
	return ctx, nil
}

// refuseForMemory counts a request refused because of this node's limits, and returns its error.
func (s *Server) refuseForMemory() error {
	s.CountLimited()
	return status.Error(codes.ResourceExhausted, "too much is being read and answered at this "+
		"moment; nothing was counted")
}

// metadataBytes returns the approximate memory of metadata.
func metadataBytes(md metadata.MD) (n int64) {
	for key, values := range md {
		n += int64(len(key))
		for _, v := range values {
			n += fieldBytes + int64(len(v))
		}
	}
	return n
}

// workBytes returns an upper bound on the memory for executing and answering a request: an answer
// has a state and headers for each descriptor, with its keys or the name of its limit.
func workBytes(in any) int64 {
	r, ok := in.(*ratelimitv3.RateLimitRequest)
	if !ok {
		return 0
	}
	return 3*bytesOf(r) + descriptorBytes*int64(len(r.GetDescriptors()))
}

// execute runs the handler of a request once there is memory for its work, and keeps the memory of
// the answer until the answer is written.
func (s *Server) execute(ctx context.Context, in any, handler grpc.UnaryHandler) (any, error) {
	st := streamOf(ctx)
	if !st.markRunning(1) {
		return nil, status.FromContextError(context.Canceled).Err()
	}
	defer st.markExecuted(1)
	work := workBytes(in) - ownBytes
	by := time.Now().Add(st.conn.roomWait())
	if work > 0 && !st.reserve(works, work, ctx.Done(), by) {
		return nil, s.refuseForMemory()
	}
	out, err := handler(ctx, in)
	st.shrinkTo(answeredBytes + st.headers + bytesOf(out)/8*9)
	return out, err
}
