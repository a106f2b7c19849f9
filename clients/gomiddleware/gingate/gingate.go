package gingate

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"twotier.dev/twotier/httpapi/client"
)

// New returns middleware. key returns the key to count a request under, and false if the request is
// not limited, as for [client.Gate.Handler].
func New(g *client.Gate, key func(*http.Request) (string, bool)) gin.HandlerFunc {
	return func(c *gin.Context) {
		k, limited := key(c.Request)
		if !limited {
			return
		}
		d := g.Decide(c.Request.Context(), []client.Check{{Key: k}})
		d.SetHeaders(c.Header)
		if !d.Passes() {
			c.Abort()
			c.Data(d.Status, client.ProblemType, d.Body())
		}
	}
}
