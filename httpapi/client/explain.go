package client

import (
	"context"
	"encoding/json"
	"net/url"
)

// ExplainRequest names a key, or the refusal with an ID.
type ExplainRequest struct {
	// Namespace is empty for the default one, or for that of the rule.
	Namespace, Key string
	// Rule selects a rule; empty selects all rules of the namespace.
	Rule string
	// ID is the id of a refusal, in place of all others.
	ID string
}

// Explain returns why a key is refused, as the JSON of GET /v1/explain. Any node explains the
// refusals of all others. The error is a [Problem] with status 404 if there is no refusal with the
// id, or it is older than an hour.
func (c *Client) Explain(ctx context.Context, r ExplainRequest) (json.RawMessage, error) {
	query, at := url.Values{}, none
	for name, value := range map[string]string{"ns": r.Namespace, "key": r.Key, "rule": r.Rule,
		"id": r.ID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if r.Key != "" && r.Rule == "" {
		at = c.view.Load().table.owner(r.Namespace, r.Key)
	}
	var answer json.RawMessage
	err := c.queryAny(ctx, at, "GET", "/v1/explain?"+query.Encode(), nil, &answer)
	return answer, err
}
