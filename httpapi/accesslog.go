package httpapi

import (
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/internal/peerhttp"
)

// Lines receives lines of text.
type Lines interface {
	// Add receives a line without its end. It must not wait, and must not keep the slice.
	Add(line []byte)
}

// maxLoggedPath bounds the logged part of a path.
const maxLoggedPath = 256

// logAccess writes a line of JSON about an answered request if the sample includes it. It skips
// messages of other nodes: their requests are logged on the node that clients sent them to, and
// cmd/twotier adds lines for the messages that are part of a trace. The query is left out because
// it contains keys.
func (s *Server) logAccess(ctx *fasthttp.RequestCtx) {
	if rand.Float64() >= s.opts.AccessShare {
		return
	}
	path := exactPath(ctx.Request.Header.RequestURI())
	if string(path) == peerhttp.Path {
		return
	}
	now := time.Now()
	began := ctx.Time()
	if began.IsZero() {
		began = now // it could not be read as a request
	}
	b := make([]byte, 0, 384)
	b = append(b, `{"time":"`...)
	b = began.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	b = appendString(append(b, `","method":`...), ctx.Method())
	b = appendString(append(b, `,"path":`...), path[:min(len(path), maxLoggedPath)])
	b = appendField(b, "status", int64(ctx.Response.StatusCode()))
	b = append(b, `,"duration_ms":`...)
	b = strconv.AppendFloat(b, max(0, now.Sub(began).Seconds()*1000), 'f', 3, 64)
	b = appendField(b, "bytes", int64(len(ctx.Response.Body())))
	peer, _ := netip.ParseAddrPort(ctx.RemoteAddr().String())
	client := s.clientAddress(plainAddr(peer.Addr()), ctx)
	b = appendString(append(b, `,"client":`...), client.String())
	if g := grantOf(ctx); g != nil {
		b = appendString(append(b, `,"token":`...), g.Name())
	}
	if c := traceOf(&ctx.Request.Header); c != nil {
		b = appendString(append(b, `,"trace_id":`...), c.TraceID())
	}
	s.opts.AccessLog.Add(append(b, '}'))
}
