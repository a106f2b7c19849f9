package fibergate

import (
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"twotier.dev/twotier/httpapi/client"
)

// New returns middleware. key returns the key to count a request under, and false if the request is
// not limited, as for [client.Gate.FastHandler].
func New(g *client.Gate, key func(*fasthttp.RequestCtx) (string, bool)) fiber.Handler {
	return func(c fiber.Ctx) error {
		k, limited := key(c.RequestCtx())
		if !limited {
			return c.Next()
		}
		d := g.Decide(c.Context(), []client.Check{{Key: k}})
		d.SetHeaders(c.Set)
		if d.Passes() {
			return c.Next()
		}
		c.Set(fiber.HeaderContentType, client.ProblemType)
		return c.Status(d.Status).Send(d.Body())
	}
}
