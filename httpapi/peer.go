package httpapi

import (
	"context"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/internal/wire"
	"twotier.dev/twotier/internal/peerhttp"
)

// Peer handles messages from other nodes.
type Peer interface {
	// Admit checks the pass of a message, and its size, before any of it is read. An error means
	// that the sender is not a node of this cluster.
	Admit(pass string, size int) error
	// Handle executes one message, which it may modify, and returns the reply. An error means that
	// the message is not from a node of this cluster.
	Handle(ctx context.Context, message []byte) (reply []byte, err error)
}

// admitPeer lets only nodes send messages. Reading messages takes no memory from clients.
func (s *Server) admitPeer(ctx *fasthttp.RequestCtx) *wire.Problem {
	h := &ctx.Request.Header
	if string(h.ContentType()) != peerhttp.Media {
		return &wire.Problem{Kind: wire.MediaType, Detail: "this path is for the other nodes"}
	}
	pass := string(h.Peek(peerhttp.HeaderPass))
	if err := s.opts.Peer.Admit(pass, h.ContentLength()); err != nil {
		return notOfClusterProblem()
	}
	memoryOf(ctx).ChargeNode(s.nodes)
	return nil
}

func notOfClusterProblem() *wire.Problem {
	return &wire.Problem{Kind: wire.Forbidden, Detail: "not a message of this cluster"}
}

// handlePeerMessage handles a message from another node.
func (s *Server) handlePeerMessage(ctx *fasthttp.RequestCtx) *wire.Problem {
	reply, err := s.opts.Peer.Handle(context.Background(), ctx.PostBody())
	if err != nil {
		return notOfClusterProblem()
	}
	ctx.SetContentType(peerhttp.Media)
	ctx.Response.SetBodyRaw(reply)
	return nil
}
