"""What the shop does to its database, without any HTTP. One `Store` serves one episode and one customer."""

from __future__ import annotations

from agentkv_envs.sites import World
from agentkv_envs.sites.shopping.database import template
from agentkv_envs.sites.shopping.store_community import Community
from agentkv_envs.sites.shopping.store_customer import Customer
from agentkv_envs.sites.shopping.store_orders import Orders


class Store(Orders, Community, Customer):
    """The shop's state and rules; what it refuses is a `Refusal`."""

    def __init__(self, world: World | None = None):
        super().__init__(template(world or World()))
