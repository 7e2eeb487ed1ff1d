"""A local LLM backend whose KV cache stays inside a memory budget.

``agentkv.chat_model.ChatAgentKV`` is the LangChain chat model, ``agentkv.engine.Engine`` the runtime under it.
"""
