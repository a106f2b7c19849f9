package gubernator

import (
	"context"
	"strconv"

	"twotier/bench/limiter"
	"twotier/bench/rival"
)

// Rivals are a cluster of one and one of three.
func Rivals() (all []rival.Rival) {
	for _, nodes := range []int{1, 3} {
		name := "gubernator-" + strconv.Itoa(nodes)
		all = append(all, rival.InProcess(name, func(ctx context.Context) (limiter.Limiter, func() error, error) {
			c, err := Start(ctx, nodes)
			if err != nil {
				return nil, nil, err
			}
			return c, c.Close, nil
		}))
	}
	return all
}
